"""Batching resolved from recipes over real files: units, bucket edges and sizes, windows, balance."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import lengths_of, plan_in, write_speech, write_text
from playhead.errors import RecipeError
from playhead.plan.form import bucket_of
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule
from playhead.plan.segments import Segment

PACK = {"type": "pack", "max_length": 512}
DURATIONS = [[0.5, 1.25, 2.0005, 3.75], [2.3, 1.0]]


def segment_of(plan: Plan) -> Segment:
    return plan.streams[0].segments[0]


def rule_of(folder: Path, source: dict, batching: dict, **fields: Any) -> Rule:
    return segment_of(plan_in(folder, source, batching=batching, **fields)).rule


@pytest.mark.parametrize(
    ("batching", "rule"),
    [
        ({"type": "fixed", "size": 3}, FixedRule(3)),
        ({"type": "fixed", "size": 3, "max_length": 4.5}, FixedRule(3, 4500)),
        ({"type": "budget", "budget": 7.5}, BudgetRule(7500, 7500)),
        ({"type": "pack", "max_length": 3.7501, "overlong": "truncate"}, PackRule(3751, "truncate")),
        ({"type": "bucket", "edges": [1.5, 2.3, 4], "size": [4, 2, 1]}, BucketRule((1500, 2300, 4000), (4, 2, 1))),
    ],
)
def test_seconds_become_milliseconds(tmp_path: Path, batching: dict, rule: Rule) -> None:
    assert rule_of(tmp_path, write_speech(tmp_path, "s", DURATIONS), batching, sequence_rate=100) == rule


def test_lengths_in_seconds_are_looked_up_in_milliseconds_rounded_up(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, write_speech(tmp_path, "s", DURATIONS))
    (lengths_of_rows,) = plan.streams[0].lengths_of
    assert lengths_of_rows(np.arange(6)).tolist() == [500, 1250, 2001, 3750, 2300, 1000]


def test_a_budget_with_a_quadratic_term_holds_the_longest_sample_that_fits(tmp_path: Path) -> None:
    rule = rule_of(tmp_path, write_text(tmp_path, "a", [[5, 10]]), {"type": "budget", "budget": 100, "quadratic": 50})
    longest = max(d for d in range(101) if d + ceil(d * d / 50) <= 100)
    assert rule == BudgetRule(100, longest, 50)


def test_a_budget_that_holds_no_sample_is_refused(tmp_path: Path) -> None:
    batching = {"type": "budget", "budget": 1, "quadratic": 50, "overlong": "truncate"}
    with pytest.raises(RecipeError, match=r"batching\.budget: is too small") as caught:
        rule_of(tmp_path, write_text(tmp_path, "a", [[5, 10]]), batching)
    assert str(caught.value.expected).startswith("at least 2:")


@pytest.mark.parametrize("num", [2, 5, 12])
def test_buckets_by_number_hold_about_equal_total_length(tmp_path: Path, num: int) -> None:
    lengths = lengths_of(3, 3, 900, longest=3000)
    rule = rule_of(tmp_path, write_text(tmp_path, "a", lengths), {"type": "bucket", "num": num, "budget": 3000})
    assert isinstance(rule, BucketRule)
    everything = np.concatenate(lengths)
    sums = np.bincount(np.searchsorted(rule.edges, everything), everything)
    assert len(rule.edges) == len(sums) == num
    assert rule.edges[-1] == everything.max()
    # An edge stands at the end of a histogram bin, which is 1/64 of its lengths wide, or moved by the longest sample.
    assert np.abs(sums / sums.sum() - 1 / num).max() < 0.02


def test_buckets_by_number_follow_the_blend_not_the_files(tmp_path: Path) -> None:
    short, long = write_text(tmp_path, "short", [[10] * 100]), write_text(tmp_path, "long", [[100] * 5])
    batching = {"type": "bucket", "num": 2, "size": 2}
    plan = plan_in(tmp_path, {**short, "weight": 1}, {**long, "weight": 1}, batching=batching)
    # By files the short samples are 2/3 of all length; in the blend the long ones are 10/11.
    assert segment_of(plan).rule.edges == (100,)
    plan = plan_in(tmp_path, {**short, "weight": 19}, {**long, "weight": 1}, batching=batching)
    assert segment_of(plan).rule.edges == (10, 100)


def test_fewer_buckets_where_lengths_do_not_differ_and_sizes_must_match(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", [[7] * 50])
    assert rule_of(tmp_path, source, {"type": "bucket", "num": 4, "size": 3}) == BucketRule((7,), (3,))
    with pytest.raises(RecipeError, match=r"batching\.size: there must be one size for each bucket"):
        rule_of(tmp_path, source, {"type": "bucket", "num": 2, "size": [3, 2]})


def test_two_dimensional_buckets_by_pairs_have_edges_of_both_units(tmp_path: Path) -> None:
    speech = write_speech(tmp_path, "s", DURATIONS)
    source = {**speech, "output_length": {"field": "json.duration", "unit": "seconds"}}
    pairs = [[1.5, 1], [1.5, 4], [4, 4]]
    rule = rule_of(tmp_path, source, {"type": "bucket", "edges": pairs, "size": 2})
    assert rule == BucketRule((1500, 1500, 4000), (2, 2, 2), (1000, 4000, 4000))


def test_two_dimensional_buckets_by_number_cross_both_lengths(tmp_path: Path) -> None:
    source = {**write_text(tmp_path, "a", lengths_of(5, 2, 400), outputs=True), "output_length": "m"}
    rule = rule_of(tmp_path, source, {"type": "bucket", "num": [3, 2], "budget": 800})
    assert isinstance(rule, BucketRule)
    assert rule.output_edges is not None
    pairs = list(zip(rule.edges, rule.output_edges, strict=True))
    assert pairs == [(a, b) for a in sorted(set(rule.edges)) for b in sorted(set(rule.output_edges))]
    assert len(pairs) == 6
    assert rule.sizes == tuple(800 // edge for edge in rule.edges)
    # Every sample is in the first bucket that holds both its lengths.
    plan = plan_in(tmp_path, source, batching={"type": "bucket", "num": [3, 2], "budget": 800})
    window = plan.window(0, 0)
    found = bucket_of(rule, window.lengths, window.outputs).tolist()
    samples = zip(window.lengths.tolist(), window.outputs.tolist(), strict=True)
    assert found == [next(i for i, (a, b) in enumerate(pairs) if n <= a and m <= b) for n, m in samples]


def test_sizes_from_a_budget_are_how_many_of_the_longest_fit(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", [[5, 60, 200]])
    edges = [10, 64, 200]
    batching = {"type": "bucket", "edges": edges, "budget": 640}
    assert rule_of(tmp_path, source, batching).sizes == (64, 10, 3)
    costs = [d + ceil(d * d / 100) for d in edges]
    assert rule_of(tmp_path, source, {**batching, "quadratic": 100}).sizes == tuple(max(1, 640 // c) for c in costs)
    assert rule_of(tmp_path, source, {**batching, "budget": 50}).sizes == (5, 1, 1)


def test_samples_without_length_are_planned_as_length_1(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", [[0] * 9])
    assert rule_of(tmp_path, source, {"type": "bucket", "num": 3, "budget": 6}) == BucketRule((1,), (6,))
    plan = plan_in(tmp_path, source, batching={"type": "bucket", "num": 3, "budget": 6})
    assert (plan.window(0, 0).lengths == 1).all()
    assert np.median(plan.window(0, 0).groups.sizes()) == 6


def test_an_explicit_window_size_is_honoured(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", lengths_of(5, 2, 300))
    plan = plan_in(tmp_path, source, batching=PACK, lanes=4, window_size=64)
    window = plan.window(0, 1)
    assert (window.first_draw, window.stop_draw) == (64, 128)
    group = {"name": "g", "batching": PACK, "sources": [source]}
    plan = plan_in(tmp_path, {**group, "window_size": 40}, lanes=4, window_size=64)
    assert segment_of(plan).window_size == 40


@pytest.mark.parametrize(("lanes", "balance"), [(1, 1), (6, 2), (8, 8), (12, 4), (64, 8)])
def test_balance_is_the_greatest_common_divisor_with_8(tmp_path: Path, lanes: int, balance: int) -> None:
    source = write_text(tmp_path, "a", [[5] * 9])
    assert segment_of(plan_in(tmp_path, source, lanes=lanes)).balance == balance
    assert segment_of(plan_in(tmp_path, source, lanes=lanes, balance=1)).balance == 1
