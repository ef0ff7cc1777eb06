"""The mixing score: estimated from a sample and the inverse of an order, compared with a count over delivered steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora import prepared, recipe_in, write_text
from playhead.inspect.locality import source_shuffles
from playhead.inspect.mixing import mixing_score, source_mixing
from playhead.order.source_order import SourceOrder, draw_of, places_of, rows_between
from playhead.plan.plan import Plan
from playhead.resolve import map_tables

ROWS_OF_A_SHARD = 50


def counted(plan: Plan, source: int = 0) -> float:
    """The score by definition: every pair of neighbours of the first epoch, in delivered order."""
    order = plan.streams[0].orders[source]
    delivered: dict[int, int] = {}
    position = 0
    for step, _ in plan.steps():
        for batch in step.micro_batches:
            picks = batch.picks
            own = [] if batch.idle else np.flatnonzero(picks.source == source).tolist()
            for i in own:
                if picks.epoch[i] == 0:
                    delivered[int(picks.row[i])] = position
                position += 1
        if len(delivered) == order.num_rows:
            break
    starts = np.concatenate(([0], np.cumsum(order.shard_rows)))
    pairs = [(row, row + 1) for a, b in pairwise(starts.tolist()) for row in range(a, b - 1)]
    distances = [abs(delivered[a] - delivered[b]) for a, b in pairs]
    return min(1.0, float(np.mean(distances)) / ((order.num_rows + 1) / 3))


RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({"shuffle": "none"}, {}),
    "groups of 1": ({"shuffle": "shards", "shuffle_group": 1}, {}),
    "groups of 4": ({"shuffle": "shards", "shuffle_group": 4}, {}),
    "groups of 10": ({"shuffle": "shards", "shuffle_group": 10}, {}),
    "global": ({"shuffle": "global"}, {}),
    "large windows": ({"shuffle": "shards", "shuffle_group": 1}, {"window_size": 1000}),
    "packs": ({"shuffle": "shards", "shuffle_group": 4}, {"batching": {"type": "pack", "max_length": 200}}),
    "windows of several epochs": ({"shuffle": "shards", "shuffle_group": 4}, {"window_size": 8000}),
    "passes": ({"shuffle": "shards", "shuffle_group": 4}, {"epochs": 1}),
}


@pytest.mark.parametrize("kind", RECIPES)
def test_the_estimate_is_the_score_of_the_delivered_order(tmp_path: Path, kind: str) -> None:
    own, fields = RECIPES[kind]
    source = {**write_text(tmp_path, "a", [[20] * ROWS_OF_A_SHARD] * 40), **own}
    plan = prepared(recipe_in(tmp_path, source, **{"lanes": 4, "batching": {"type": "fixed", "size": 2}, **fields}))
    found = source_mixing(plan, 0, [0])[0]
    assert found == pytest.approx(counted(plan), rel=0.08, abs=0.002)
    assert found == source_mixing(plan, 0, [0])[0]


def test_the_estimate_holds_in_a_blend_where_other_sources_are_between(tmp_path: Path) -> None:
    source = {**write_text(tmp_path, "a", [[20] * ROWS_OF_A_SHARD] * 40), "shuffle": "shards", "shuffle_group": 4}
    other = {**write_text(tmp_path, "b", [[20] * 300]), "weight": 3}
    fields = {"lanes": 4, "batching": {"type": "fixed", "size": 2}, "weights_in": "samples"}
    plan = prepared(recipe_in(tmp_path, {**source, "weight": 1}, other, **fields))
    found = source_mixing(plan, 0, [0])[0]
    assert found == pytest.approx(counted(plan), rel=0.1)


def test_global_is_one_none_is_zero_and_the_score_grows_with_the_group(tmp_path: Path) -> None:
    shards = [[20] * ROWS_OF_A_SHARD] * 64
    recipe = recipe_in(tmp_path, {**write_text(tmp_path, "a", shards), "shuffle_group": 8}, lanes=2)
    plan = prepared(recipe)
    ((compared,),) = source_shuffles(recipe, plan, map_tables(recipe))
    by_group = {found.group: found.mixing for found in compared.shuffles}
    assert list(by_group) == [4, 8, 16, 32, None]
    assert [*by_group.values()] == sorted(by_group.values())
    assert by_group[None] == pytest.approx(1, rel=0.05)
    for group in (4, 8, 16, 32):
        assert by_group[group] == pytest.approx(group / 64, rel=0.1)
    assert [found.chosen for found in compared.shuffles] == [False, False, False, False, True]
    in_order = prepared(recipe_in(tmp_path, {**write_text(tmp_path, "a", shards), "shuffle": "none"}, lanes=2))
    assert source_mixing(in_order, 0, [0])[0] < 0.01
    ((alone,),) = source_shuffles(recipe, in_order, map_tables(recipe))
    assert [(found.shuffle, found.chosen) for found in alone.shuffles] == [("none", True)]


def test_a_uniform_shuffle_has_the_score_one_by_definition() -> None:
    positions = np.random.default_rng(5).permutation(20_000).astype(np.float64)
    assert mixing_score(positions[:-1], positions[1:], 20_000) == pytest.approx(1, rel=0.02)
    order = np.arange(20_000, dtype=np.float64)
    assert mixing_score(order[:-1], order[1:], 20_000) == pytest.approx(3 / 20_001)
    assert mixing_score(np.empty(0), np.empty(0), 1) == 1.0
    assert mixing_score(3 * positions[:-1], 3 * positions[1:], 20_000) == 1.0


def test_a_billion_rows_need_no_walk() -> None:
    rows = np.full(10_000, 100_000)
    order = SourceOrder(int(rows.sum()), "shards", 7, rows, 8)
    chosen = np.arange(0, 10**9, 99_999_989)
    places = places_of(order, 0, chosen)
    for row, place in zip(chosen.tolist(), places.tolist(), strict=True):
        assert rows_between(order, place, place + 1)[1].tolist() == [row]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any),
    st.sampled_from(["none", "global", "shards"]),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(0, 2**32),
)
def test_places_are_the_inverse_of_the_order(sizes: list[int], shuffle: str, group: int, epoch: int, key: int) -> None:
    order = replace(SourceOrder(sum(sizes), shuffle, key, np.array(sizes), group), first_row=3)
    epochs, rows = rows_between(order, epoch * order.num_rows, (epoch + 1) * order.num_rows)
    assert places_of(order, epoch, rows).tolist() == [*range(order.num_rows)]
    for draw, (row, of) in enumerate(islice(zip(rows.tolist(), epochs.tolist(), strict=True), 3)):
        assert draw_of(order, of, row) == epoch * order.num_rows + draw
