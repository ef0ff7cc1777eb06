"""Evaluation sets: file order, source after source, every row once on any number of ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import lengths_of, named_rows, once_each, real_batches, recipe_in, take, write_text
from playhead.deal import lanes_of_rank
from playhead.errors import RecipeError
from playhead.plan.plan import Plan
from playhead.prepare import prepare
from playhead.resolve import open_plan

BATCHINGS = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 900},
    "bucket": {"type": "bucket", "num": 4, "budget": 900},
    "pack": {"type": "pack", "max_length": 500},
}


def evaluated(folder: Path, batching: dict, world_size: int = 1, **fields: Any) -> Plan:
    """Sources `z` (20 + 23 rows) and then `b` (20 rows), beside a training source."""
    train = write_text(folder, "train", [[5] * 10])
    sources = [write_text(folder, "z", lengths_of(1, 2, 20)), write_text(folder, "b", lengths_of(2, 1, 20))]
    dev = {"sources": sources, "batching": batching, **fields}
    recipe = recipe_in(folder, train, evaluation={"dev": dev})
    prepare(recipe, workers=1)
    return open_plan(recipe, "dev", world_size)


def dealt(plan: Plan, world_size: int) -> list[list[list]]:
    """The micro-batches of each rank."""
    return [
        [step.micro_batches[lane] for step in take(plan) for lane in lanes_of_rank(rank, world_size, plan.lanes)]
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("world_size", range(1, 8))
@pytest.mark.parametrize("kind", BATCHINGS)
def test_every_row_is_read_once_on_any_number_of_ranks(tmp_path: Path, kind: str, world_size: int) -> None:
    plan = evaluated(tmp_path, BATCHINGS[kind], world_size)
    assert plan.lanes == world_size
    ranks = dealt(plan, world_size)
    assert len({len(batches) for batches in ranks}) == 1
    seen = Counter(
        (source, row)
        for batches in ranks
        for batch in batches
        if not batch.idle
        for source, row in zip(batch.picks.source.tolist(), batch.picks.row.tolist(), strict=True)
    )
    assert seen == Counter([(0, row) for row in range(43)] + [(1, row) for row in range(20)])
    assert sum(batch.num_samples for batches in ranks for batch in batches) == 63


@pytest.mark.parametrize("kind", ["fixed", "budget"])
@pytest.mark.parametrize("world_size", [1, 4])
def test_rows_come_in_file_order_source_after_source_as_written(tmp_path: Path, kind: str, world_size: int) -> None:
    plan = evaluated(tmp_path, BATCHINGS[kind], world_size)
    expected = [("z", 0, row) for row in range(43)] + [("b", 0, row) for row in range(20)]
    assert named_rows(plan, take(plan)) == expected


def test_lanes_without_a_sample_are_idle(tmp_path: Path) -> None:
    plan = evaluated(tmp_path, {"type": "fixed", "size": 12}, 5)
    *full, last = take(plan)
    assert not any(batch.idle for step in full for batch in step.micro_batches)
    assert [len(step.micro_batches) for step in full] == [5]
    assert [(batch.idle, batch.num_samples) for batch in last.micro_batches] == [(False, 1)] * 3 + [(True, 0)] * 2
    assert all(len(batch.picks) == 1 for batch in last.micro_batches)  # an idle lane repeats a real one


def test_lanes_of_its_own_hold_for_every_world_size(tmp_path: Path) -> None:
    plans = [evaluated(tmp_path, BATCHINGS["fixed"], world_size, lanes=6) for world_size in (1, 2, 3, 6)]
    assert {plan.lanes for plan in plans} == {6}
    assert len({plan.fingerprint for plan in plans}) == 1
    assert len({take(plan)[-1].receipt for plan in plans}) == 1


def test_buckets_by_number_weigh_sources_by_their_rows(tmp_path: Path) -> None:
    # Ten rows of 100 and a thousand of 10: half of all length is in rows of 10 only if rows are counted.
    sources = [write_text(tmp_path, "a", [[100] * 10]), write_text(tmp_path, "b", [[10] * 1000])]
    dev = {"sources": sources, "batching": {"type": "bucket", "num": 2, "size": 4}}
    recipe = recipe_in(tmp_path, write_text(tmp_path, "train", [[5]]), evaluation={"dev": dev})
    prepare(recipe, workers=1)
    plan = open_plan(recipe, "dev")
    assert plan.streams[0].segments[0].rule.edges == (10, 100)
    lengths = [np.unique(batch.lengths).tolist() for batch in real_batches(take(plan))]
    assert lengths.count([10]) == 250
    assert lengths.count([100]) == 3


def test_the_training_stream_and_an_evaluation_set_may_share_a_source(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", lengths_of(1, 2, 20))
    batching = {"type": "pack", "max_length": 150, "overlong": "drop"}
    dev = {"sources": [source], "batching": {"type": "fixed", "size": 4}}
    recipe = recipe_in(tmp_path, source, batching=batching, evaluation={"dev": dev}, epochs=1)
    prepare(recipe, workers=1)
    plan = open_plan(recipe, "dev")
    assert Counter(named_rows(plan, take(plan))) == once_each(a=43)
    trained = open_plan(recipe)
    assert trained.streams[0].orders[0].num_rows < 43
    assert trained.fingerprint != plan.fingerprint


def test_an_unknown_set_is_refused_with_those_there_are(tmp_path: Path) -> None:
    train = write_text(tmp_path, "train", [[5] * 10])
    dev = {"sources": [write_text(tmp_path, "d", [[5]])], "batching": BATCHINGS["fixed"]}
    recipe = recipe_in(tmp_path, train, evaluation={"dev": dev, "test": dev})
    prepare(recipe, workers=1)
    with pytest.raises(RecipeError) as caught:
        open_plan(recipe, "devv")
    assert caught.value.expected == "one of: dev, test"
