"""The default window: long enough, not too long, and just short of whole steps."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import lengths_of, plan_in, write_text
from playhead.index.histogram import Tally
from playhead.order.source_order import SourceOrder, rows_between
from playhead.plan.form import bucket_of, form
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, PackRule, Rule
from playhead.plan.segments import Segment
from playhead.resolve.batching import Profile, equal_length_edges, profile
from playhead.resolve.window_size import Drawn, default_window_size


def segment_of(plan: Plan) -> Segment:
    return plan.streams[0].segments[0]


BATCHINGS = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 1000},
    "quadratic": {"type": "budget", "budget": 1000, "quadratic": 300},
    "pack": {"type": "pack", "max_length": 512},
    "bucket": {"type": "bucket", "num": 6, "budget": 1000},
    "pairs": {"type": "bucket", "num": [3, 2], "size": 4},
}


@pytest.mark.parametrize("lanes", [1, 6, 16])
@pytest.mark.parametrize("kind", BATCHINGS)
def test_the_default_window_delivers_at_least_200_steps(tmp_path: Path, kind: str, lanes: int) -> None:
    source = {**write_text(tmp_path, "a", lengths_of(5, 2, 300), outputs=True), "output_length": "m"}
    plan = plan_in(tmp_path, source, batching=BATCHINGS[kind], lanes=lanes)
    segment, window = segment_of(plan), plan.window(0, 0)
    size = 3 if kind == "fixed" else 1
    assert segment.window_size % (size * lanes) == 0
    assert window.num_steps >= 200
    assert kind in ("bucket", "pairs") or window.num_steps <= 260
    assert kind != "fixed" or segment.window_size == 200 * size * lanes


@pytest.mark.parametrize("overlong", ["alone", "truncate"])
@pytest.mark.parametrize("kind", ["pack", "budget"])
def test_a_few_huge_samples_do_not_make_the_window_short(tmp_path: Path, kind: str, overlong: str) -> None:
    batching = {**BATCHINGS[kind], "overlong": overlong}
    plan = plan_in(tmp_path, write_text(tmp_path, "a", [[10] * 90 + [100_000] * 10]), batching=batching, lanes=4)
    assert plan.window(0, 0).num_steps >= 200


def test_the_default_window_fills_50_micro_batches_of_every_bucket(tmp_path: Path) -> None:
    lengths = [[10] * 990 + [100] * 9 + [400]]
    batching = {"type": "bucket", "edges": [10, 50, 100, 400], "size": [8, 8, 8, 4]}
    plan = plan_in(tmp_path, write_text(tmp_path, "a", lengths), batching=batching, lanes=4)
    window = plan.window(0, 0)
    buckets = np.bincount(bucket_of(window.rule, window.lengths, None), minlength=5)
    assert 50 * 4 * 1000 <= segment_of(plan).window_size <= 65 * 4 * 1000
    assert (buckets[[0, 2, 3]] >= 50 * np.array([8, 8, 4])).all()
    assert buckets[1] == buckets[4] == 0  # an empty bucket asks for nothing


def test_the_default_window_is_at_most_4_million_draws(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", [[10] * 50]), write_text(tmp_path, "b", [[90] * 50])
    batching = {"type": "bucket", "edges": [10, 100], "size": 16}
    plan = plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 0.00001}, batching=batching, lanes=3)
    assert 0.7 * 2**22 < segment_of(plan).window_size <= 2**22
    assert segment_of(plan).window_size % 3 == 0


def profile_of(lengths: np.ndarray) -> Profile:
    tally = Tally()
    tally.add(lengths)
    return profile([tally.histogram()], [1.0], int(lengths.max()))


def log_normal(mean: float, spread: float) -> np.ndarray:
    return np.clip(np.random.default_rng(3).lognormal(mean, spread, 1 << 20), 1, 4096).astype(np.uint32)


LENGTHS = {"log-normal": log_normal(6.0, 1.0), "28 each": np.full(1 << 10, 28, np.uint32), "long": log_normal(7.5, 0.5)}
RULES: dict[str, Any] = {
    "pack": lambda _: PackRule(4096),
    "bucket": lambda edges: BucketRule(edges, tuple(max(1, 4096 // edge) for edge in edges)),
}


@pytest.mark.parametrize("lanes", [64, 1024, 4096, 16_384])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_micro_batches_fall_just_short_of_whole_steps(lengths: str, rule: str, lanes: int) -> None:
    """Splitting to whole steps costs under 0.7 %, whatever the step takes of the window."""
    inputs = profile_of(LENGTHS[lengths])
    chosen: Rule = RULES[rule](tuple(equal_length_edges(inputs, 12)))
    size = default_window_size(chosen, lanes, Drawn(inputs, None))
    assert size % lanes == 0
    drawn = np.random.default_rng(4).choice(LENGTHS[lengths], size).astype(np.int64)
    num_formed = len(form(chosen, size, drawn, None))
    assert -num_formed % lanes / num_formed < 0.007


def test_a_window_of_more_than_4_million_draws_holds_8_steps() -> None:
    inputs = profile_of(LENGTHS["28 each"])
    size = default_window_size(PackRule(4096), 16_384, Drawn(inputs, None))
    assert size > 2**22
    assert 7.9 < size / 146 / 16_384 <= 8


@pytest.mark.parametrize("rule", [PackRule(1 << 22), BudgetRule(1 << 22, 1 << 22), BucketRule((50,), (100_000,))])
def test_micro_batches_that_thousands_of_samples_do_not_fill_have_a_window_too(rule: Rule) -> None:
    size = default_window_size(rule, 1, Drawn(profile_of(LENGTHS["28 each"]), None))
    full = 100_000 if isinstance(rule, BucketRule) else (1 << 22) / 28
    assert 7.5 <= size / full <= 50


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.75, 0.25)])
@pytest.mark.parametrize("rule", [PackRule(512, "alone"), BudgetRule(4000, 4000)])
def test_the_default_window_draws_no_more_than_a_group_of_a_shard_shuffled_source(rule: Rule, shares: Any) -> None:
    order = SourceOrder(4000, "shards", 1, np.array([100] * 30 + [50] * 20), 4)
    other = SourceOrder(10**6, "global", 1)
    inputs = profile_of(np.full(100, 40, np.uint32))
    size = default_window_size(rule, 2, Drawn(inputs, None, ((order, shares[0]), (other, shares[1]))))
    assert 130 <= size * shares[0] <= 200
    tiny = SourceOrder(8, "shards", 1, np.array([2] * 4), 2)
    one_step = np.full(default_window_size(rule, 8, Drawn(inputs, None, ((tiny, 1.0),))), 40)
    assert 6 <= len(form(rule, len(one_step), one_step, None)) <= 8


@pytest.mark.parametrize("batching", ["fixed", "pack", "bucket", "budget"])
def test_at_most_two_groups_of_shards_are_in_use_in_delivered_order(tmp_path: Path, batching: str) -> None:
    """Three where epochs meet, the last group being a short one. A given window may use more, and `plan` says so."""
    noise = np.random.default_rng(1)
    shards = [[int(n) for n in noise.integers(5, 90, int(rows))] for rows in noise.integers(60, 90, 23)]
    source = {**write_text(tmp_path, "a", shards), "shuffle": "shards", "shuffle_group": 2}
    other = write_text(tmp_path, "b", [[30] * 900])
    fields: dict[str, Any] = {"batching": BATCHINGS[batching], "lanes": 2, "weights_in": "samples"}
    both = [{**source, "weight": 3}, {**other, "weight": 1}]
    peaks = shards_in_use(plan_in(tmp_path, *both, **fields))
    assert max(peaks["inside"]) <= 2
    assert max(peaks["meeting"]) <= 3
    assert max(shards_in_use(plan_in(tmp_path, *both, **fields, window_size=480))["inside"]) > 2


def shards_in_use(plan: Plan) -> dict[str, list[int]]:
    """How many groups of shards of the first source each step has in use, inside an epoch and where two meet."""
    order = plan.streams[0].orders[0]
    group_of = [groups(order, epoch) for epoch in range(3)]
    used: dict[tuple[int, int], list[int]] = defaultdict(list)
    epochs: dict[int, set[int]] = defaultdict(set)
    window_of: list[int] = []
    for step, _ in plan.steps():
        window_of.append(step.parts[0].place.window)
        for batch in step.micro_batches:
            for source, epoch, row in zip(*(column.tolist() for column in picks(batch)), strict=True):
                if source == 0 and epoch < 3:
                    used[epoch, group_of[epoch][row]].append(step.number)
                    epochs[window_of[-1]].add(epoch)
        if epochs[window_of[-1]] == {2}:
            break
    spans = [(min(steps), max(steps)) for steps in used.values()]
    found: dict[str, list[int]] = {"inside": [], "meeting": []}
    for number, window in enumerate(window_of):
        meets = any(len(epochs[near]) > 1 for near in (window - 1, window, window + 1) if near in epochs)
        found["meeting" if meets else "inside"].append(sum(low <= number <= high for low, high in spans))
    return found


def picks(batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return batch.picks.source, batch.picks.epoch, batch.picks.row


def groups(order: SourceOrder, epoch: int) -> dict[int, int]:
    """The group of shards of each row in an epoch: a group is finished before the next begins."""
    _, rows = rows_between(order, epoch * order.num_rows, (epoch + 1) * order.num_rows)
    shards = np.searchsorted(np.cumsum(order.shard_rows), rows, side="right").tolist()
    found: dict[int, int] = {}
    number, left = 0, 0
    members: set[int] = set()
    for row, shard in zip(rows.tolist(), shards, strict=True):
        if shard not in members:
            if len(members) == order.group and left == 0:
                number, members = number + 1, set()
            members.add(shard)
            left += int(order.shard_rows[shard])
        left -= 1
        found[row] = number
    return found
