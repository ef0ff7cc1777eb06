"""The shards in use that `playhead plan` prints, against the order in which steps are delivered."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora import prepared, recipe_in, write_text
from playhead.inspect.shard_peak import ShardPeak, most_shards
from playhead.inspect.summary import summarise
from playhead.order.source_order import SourceOrder, rows_between
from playhead.plan.plan import Plan
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)


def groups(order: SourceOrder, num_epochs: int) -> list[tuple[int, set[tuple[int, int]]]]:
    """Every group in the order in which it is read: its draws, and its shards with rows, each with its epoch."""
    found = []
    for epoch in range(num_epochs):
        _, rows = rows_between(order, epoch * order.num_rows, (epoch + 1) * order.num_rows)
        shards = np.searchsorted(np.cumsum(order.shard_rows), rows, side="right").tolist()
        seen = {shard: place for place, shard in enumerate(shards)}
        begin = 0
        while begin < len(shards):
            end = begin + 1
            while any(seen[shard] >= end for shard in shards[begin:end]):  # until all that began have ended
                end = 1 + max(seen[shard] for shard in shards[begin:end])
            found.append((end - begin, {(epoch, shard) for shard in shards[begin:end]}))
            begin = end
    return found


def most_in_groups(order: SourceOrder, num_draws: int, num_epochs: int) -> int:
    """The shards of all groups that consecutive draws touch, at most, draw by draw."""
    of_draw = [shards for count, shards in groups(order, num_epochs) for _ in range(count)]
    windows = range(max(1, len(of_draw) - num_draws + 1))
    return max(len(set().union(*of_draw[first : first + num_draws])) for first in windows)


@given(SIZES, st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_no_window_has_more_shards_in_use(sizes: list[int], group: int, num_draws: int, key: int) -> None:
    order = SourceOrder(sum(sizes), "shards", key, np.array(sizes), group)
    assert most_in_groups(order, num_draws, 1) <= most_shards(order, num_draws, epochs_meet=False) <= len(sizes)
    assert most_in_groups(order, num_draws, 3) <= most_shards(order, num_draws, epochs_meet=True)


@given(st.integers(1, 4), st.integers(2, 5), st.integers(1, 4), st.integers(1, 40))
def test_where_shards_are_alike_some_window_has_as_many(num_groups: int, rows: int, group: int, num_draws: int) -> None:
    num_shards = num_groups * group
    order = SourceOrder(num_shards * rows, "shards", 7, np.full(num_shards, rows), group)
    group_of_draw = np.arange(num_draws + group * rows) // (group * rows)
    most = max(np.unique(group_of_draw[i : i + num_draws]).size for i in range(group * rows)) * group
    assert most_shards(order, num_draws, epochs_meet=True) == most
    assert most_shards(order, num_draws, epochs_meet=False) == min(most, num_shards)


def delivered_peak(plan: Plan, stream: int, bounds: np.ndarray, sizes: np.ndarray, num_steps: int) -> tuple[int, int]:
    """The most shards, and bytes, in use at a step of one sub-stream, by a slow count over delivered steps."""
    used: dict[tuple[int, int], list[int]] = defaultdict(list)
    for step, _ in islice(plan.steps(), num_steps):
        for batch in step.micro_batches:
            if batch.stream == stream:
                picks = zip(
                    batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True
                )
                for source, epoch, row in picks:
                    if source == 0:
                        used[epoch, int(np.searchsorted(bounds, row, side="right"))].append(step.number)
    spans = [(min(steps), max(steps), int(sizes[shard])) for (_, shard), steps in used.items()]
    in_use = [[size for low, high, size in spans if low <= step <= high] for step in range(num_steps)]
    return max(map(len, in_use)), max(map(sum, in_use))


def peak_of(recipe: Recipe, plan: Plan, stream: int) -> ShardPeak:
    tables = {table.name: table for table in map_tables(recipe).values()}
    (peak,) = summarise(plan, stream, 4, tables).shard_peaks
    return peak


FIELDS: dict[str, dict[str, Any]] = {
    "fixed": {"batching": {"type": "fixed", "size": 2}},
    "pack": {"batching": {"type": "pack", "max_length": 300}},
    "given window": {"batching": {"type": "fixed", "size": 2}, "window_size": 400},
    "parts": {"batching": {"type": "fixed", "size": 2}, "parts": 2},
    "passes": {"batching": {"type": "fixed", "size": 2}, "epochs": 3},
}


@pytest.mark.parametrize("kind", FIELDS)
def test_the_peak_that_is_printed_is_reached_and_not_passed_in_delivered_order(tmp_path: Path, kind: str) -> None:
    """Equal shards, a last group of one, and steps of many epochs: windows come to lie across groups in every way."""
    shards = [[20 + j % 7 for j in range(40)] for _ in range(34 if kind == "parts" else 17)]
    source = {**write_text(tmp_path, "a", shards), "shuffle": "shards", "shuffle_group": 4}
    recipe = recipe_in(tmp_path, source, **{"lanes": 4, **FIELDS[kind]})
    plan = prepared(recipe)
    sizes = np.array([(tmp_path / f"a-{shard:03}.jsonl").stat().st_size for shard in range(len(shards))])
    bounds = np.cumsum([len(shard) for shard in shards])
    num_steps = 17 * 40 * 3 // 8 if kind == "passes" else 1500
    for stream in range(len(plan.streams)):
        peak = peak_of(recipe, plan, stream)
        found = delivered_peak(plan, stream, bounds, sizes, num_steps)
        expected = {"passes": 8, "given window": 17, "fixed": 9, "pack": 9, "parts": 9}[kind]
        assert (peak.name, peak.num_shards) == ("a", expected)
        assert found[0] <= peak.num_shards
        assert found[1] <= peak.num_bytes <= sizes.max() * peak.num_shards
        if kind != "passes":  # whose windows are whole groups
            assert found[0] >= peak.num_shards - 1  # where three groups meet, hardly a step has shards of all of them


def test_shards_of_a_blend_are_counted_by_the_share_of_their_source(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    shards = [[30] * int(rows) for rows in noise.integers(60, 90, 23)]
    source = {**write_text(tmp_path, "a", shards), "shuffle": "shards", "shuffle_group": 2, "weight": 3}
    other = {**write_text(tmp_path, "b", [[30] * 900]), "weight": 1}
    sizes = np.array([(tmp_path / f"a-{shard:03}.jsonl").stat().st_size for shard in range(len(shards))])
    for window in (None, 480):
        fields = {"lanes": 2, "weights_in": "samples", "batching": {"type": "fixed", "size": 2}, "window_size": window}
        recipe = recipe_in(tmp_path, source, other, **fields)
        plan = prepared(recipe)
        peak = peak_of(recipe, plan, 0)
        found = delivered_peak(plan, 0, np.cumsum([len(shard) for shard in shards]), sizes, 1500)
        assert found[0] <= peak.num_shards <= found[0] + 4
        assert found[1] <= peak.num_bytes


def test_a_shard_that_two_epochs_use_at_a_time_is_one(tmp_path: Path) -> None:
    """A cache has one copy of it."""
    source = {**write_text(tmp_path, "a", [[3] * 9, [4] * 11]), "shuffle": "shards", "shuffle_group": 8}
    recipe = recipe_in(tmp_path, source, lanes=2, window_size=200)
    peak = peak_of(recipe, prepared(recipe), 0)
    assert (peak.num_shards, peak.num_bytes) == (2, sum(path.stat().st_size for path in tmp_path.glob("a-*.jsonl")))


def test_sources_that_are_not_shuffled_by_shards_have_no_peak(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, write_text(tmp_path, "a", [[3] * 9, [4] * 9]))
    plan = prepared(recipe)
    assert summarise(plan, 0, 2, {"a": next(iter(map_tables(recipe).values()))}).shard_peaks == ()
