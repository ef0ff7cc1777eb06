"""Forming micro-batches: each kernel against its twin, and the laws of splitting and balancing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import twins
from hypothesis import given
from hypothesis import strategies as st
from strategies import divisors, plans, streams

from playhead.order.picks import counting_sort
from playhead.plan.form import form, num_formed
from playhead.plan.groups import Groups, grouped, padded_costs, split_largest, total_lengths
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, effective, planned_lengths
from playhead.plan.segments import Stream
from playhead.plan.steps import Arrangement, fixed_steps, whole_steps
from playhead.plan.window import plan_window
from playhead.seeds import hash_text

length_lists = st.lists(st.integers(1, 60), max_size=80)


def batches(groups: Groups) -> list[list[int]]:
    return [groups.members[a:b].tolist() for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)]


@given(length_lists, st.integers(1, 200), st.sampled_from([0, 7, 50]))
def test_budgets_agree_with_their_twin(lengths: list[int], budget: int, quadratic: int) -> None:
    rule = BudgetRule(budget, budget, quadratic, "alone")
    costs = [n + -(-n * n // quadratic) if quadratic else n for n in lengths]
    assert effective(rule, np.array(lengths, np.int64)).tolist() == costs
    formed = form(rule, len(lengths), np.array(lengths, np.int64), None)
    assert batches(formed) == twins.cut_by_budget(costs, budget)
    assert num_formed(rule, np.array(lengths, np.int64), None) == len(formed)


@given(length_lists, st.data())
def test_buckets_in_one_and_two_dimensions_agree_with_their_twin(lengths: list[int], data: st.DataObject) -> None:
    outputs = data.draw(st.lists(st.integers(0, 60), min_size=len(lengths), max_size=len(lengths)))
    pair = st.tuples(st.integers(1, 60), st.integers(0, 60))
    edges = sorted(data.draw(st.lists(pair, min_size=1, max_size=6, unique=True)))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=len(edges), max_size=len(edges)))
    given_lengths, given_outputs = np.array(lengths, np.int64), np.array(outputs, np.int64)
    rule = BucketRule(tuple(a for a, _ in edges), tuple(sizes), tuple(b for _, b in edges), overlong="alone")
    formed = form(rule, len(lengths), given_lengths, given_outputs)
    assert batches(formed) == twins.bucketed(lengths, outputs, edges, sizes)
    assert num_formed(rule, given_lengths, given_outputs) == len(formed)
    flat = sorted({a for a, _ in edges})
    formed = form(BucketRule(tuple(flat), tuple(sizes[: len(flat)])), len(lengths), given_lengths, None)
    assert batches(formed) == twins.bucketed(lengths, [0] * len(lengths), [(a, 0) for a in flat], sizes)


@given(length_lists, st.integers(1, 150))
def test_packs_agree_with_their_twin(lengths: list[int], max_length: int) -> None:
    formed = form(PackRule(max_length), len(lengths), np.array(lengths, np.int64), None)
    assert batches(formed) == twins.packed(lengths, max_length)
    assert num_formed(PackRule(max_length), np.array(lengths, np.int64), None) == len(formed)


@given(st.lists(st.integers(1, 70_000), max_size=60), st.integers(5000, 70_000))
def test_packs_in_fine_units_agree_with_their_twin(lengths: list[int], max_length: int) -> None:
    formed = form(PackRule(max_length), len(lengths), np.array(lengths, np.int64), None)
    assert batches(formed) == twins.packed(lengths, max_length)


@given(st.lists(st.integers(0, 6), max_size=50))
def test_counting_sort_is_stable(values: list[int]) -> None:
    order, starts = counting_sort(np.array(values, np.int64), 7)
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)
    assert starts.tolist() == [sum(v < value for v in values) for value in range(8)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 60))
def test_splitting_loses_and_moves_no_sample(ids: list[int], num_more: int) -> None:
    values, dense = np.unique(ids, return_inverse=True)
    before = grouped(dense.astype(np.int64), len(values))
    lengths = np.arange(1, len(ids) + 1)
    after = split_largest(before, lambda groups: padded_costs(groups, lengths), num_more)
    assert np.array_equal(after.members, before.members)
    assert set(before.starts.tolist()) <= set(after.starts.tolist())
    assert len(after) == min(len(before) + num_more, len(ids))
    assert (after.sizes() > 0).all()


def test_the_costliest_batches_are_split_first() -> None:
    groups = Groups(np.arange(10), np.array([0, 4, 6, 9, 10]))
    lengths = np.array([1, 1, 1, 1, 50, 50, 2, 2, 2, 99])
    after = split_largest(groups, lambda found: padded_costs(found, lengths), 2)
    assert after.starts.tolist() == [0, 4, 5, 6, 8, 9, 10]  # 100 in halves, then 6 before 4; 99 is one sample


@given(st.integers(1, 12), st.integers(1, 8), st.data())
def test_the_micro_batches_of_a_step_come_in_bands_of_neighbouring_cost(
    num_steps: int, lanes: int, data: st.DataObject
) -> None:
    balance = data.draw(st.sampled_from(divisors(lanes)))
    lengths = np.array(data.draw(st.permutations(range(1, num_steps * lanes + 1))), np.int64)
    formed = form(FixedRule(1), len(lengths), lengths, None)
    how = Arrangement(lanes, balance, False, 3, 4)
    for arranged in (
        whole_steps(formed, lambda groups: padded_costs(groups, lengths), how),
        fixed_steps(formed, lambda groups: padded_costs(groups, lengths), 1, how),
    ):
        ranks = padded_costs(arranged, lengths) - 1
        assert sorted(ranks.tolist()) == list(range(len(lengths)))
        for step in ranks.reshape(-1, lanes):
            assert set(Counter((step // balance).tolist()).values()) == {balance}


def test_balance_evens_the_cost_inside_a_step() -> None:
    noise = np.random.default_rng(1)
    lengths = np.clip(noise.lognormal(6, 1, 64 * 200), 1, 4096).astype(np.int64)
    formed = form(FixedRule(4), len(lengths), lengths, None)

    def waste(balance: int) -> float:
        groups = fixed_steps(formed, lambda g: padded_costs(g, lengths), 4, Arrangement(16, balance, False, 3, 4))
        steps = padded_costs(groups, lengths).reshape(-1, 16)
        return float(1 - steps.mean() / steps.max(axis=1).mean())

    assert waste(16) < 0.25 * waste(1)
    assert waste(8) < waste(1)


def test_no_lane_is_left_the_cheap_batches() -> None:
    lengths = np.random.default_rng(2).integers(1, 1000, 8 * 400)
    formed = form(FixedRule(1), len(lengths), lengths, None)
    groups = fixed_steps(formed, lambda g: padded_costs(g, lengths), 1, Arrangement(8, 8, False, 3, 4))
    by_lane = padded_costs(groups, lengths).reshape(-1, 8).mean(axis=0)
    assert by_lane.max() / by_lane.min() < 1.2


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 6))
def test_the_rest_of_fixed_batches_is_dealt_evenly_over_one_last_step(num_samples: int, size: int, lanes: int) -> None:
    formed = form(FixedRule(size), num_samples, None, None)
    sizes = fixed_steps(formed, None, size, Arrangement(lanes, 1, False, 3, 4)).sizes()
    full = num_samples // (size * lanes) * lanes
    assert sizes[:full].tolist() == [size] * full
    rest = sizes[full:]
    assert rest.sum() == num_samples - full * size
    assert len(rest) in (0, lanes)
    assert not len(rest) or rest.max() - rest.min() <= 1


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.integers(1, 50))
def test_truncated_lengths_never_pass_the_limit_and_no_sample_is_free(lengths: list[int], limit: int) -> None:
    cut = planned_lengths(PackRule(limit, "truncate"), np.array(lengths, np.int64)).tolist()
    assert cut == [max(1, min(n, limit)) for n in lengths]
    assert planned_lengths(PackRule(limit, "alone"), np.array(lengths, np.int64)).tolist() == [
        max(1, n) for n in lengths
    ]


@given(streams(epochs=st.none() | st.integers(1, 2)))
def test_no_micro_batch_overflows_its_rule(stream: Stream) -> None:
    window = plan_window(stream, 0)
    rule, lengths = window.rule, window.lengths
    sizes, costs = window.groups.sizes(), padded_costs(window.groups, effective(rule, lengths))
    if isinstance(rule, FixedRule):
        assert sizes.max() <= rule.size
    elif isinstance(rule, BudgetRule):
        assert ((costs <= rule.budget) | (sizes == 1)).all()
    elif isinstance(rule, BucketRule):
        assert sizes.max() <= max(rule.sizes)
    else:
        assert ((total_lengths(window.groups, lengths) <= rule.max_length) | (sizes == 1)).all()


@given(plans())
def test_receipts_agree_with_their_twin(plan: Plan) -> None:
    expected = 0
    for (step, _), _ in zip(plan.steps(), range(12), strict=False):
        busy = [batch for batch in step.micro_batches if not batch.idle]
        lanes = [
            (
                batch.lane,
                [
                    (hash_text(plan.streams[batch.stream].source_names[s]), e, r)
                    for s, e, r in zip(
                        batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True
                    )
                ],
            )
            for batch in sorted(busy, key=lambda batch: batch.stream)
        ]
        expected = twins.receipt(expected, step.number, lanes)
        assert step.receipt == expected
