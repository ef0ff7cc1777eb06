"""From recipes over real files to streams: lanes, where streams end, parts, sub-streams."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import (
    lengths_of,
    named_rows,
    once_each,
    plan_in,
    prepared,
    real_batches,
    recipe_in,
    take,
    write_speech,
    write_text,
)
from playhead.errors import RecipeError
from playhead.plan.plan import Plan
from playhead.resolve import open_plan

BATCHINGS = [
    {"type": "fixed", "size": 3},
    {"type": "budget", "budget": 900},
    {"type": "bucket", "num": 4, "budget": 900},
    {"type": "pack", "max_length": 500},
]


def two_sources(folder: Path) -> list[dict[str, Any]]:
    """a has 20 + 23 + 26 rows, b has 20."""
    return [write_text(folder, "a", lengths_of(1, 3, 20)), write_text(folder, "b", lengths_of(2, 1, 20))]


def counts_of(plan: Plan) -> Counter[str]:
    return Counter(name for name, _, _ in named_rows(plan, take(plan)))


def test_lanes_may_be_missing_with_one_rank_only(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, *two_sources(tmp_path))
    assert prepared(recipe).lanes == 1
    with pytest.raises(RecipeError) as caught:
        open_plan(recipe, world_size=6)
    assert caught.value.problem.startswith("lanes: is missing")
    assert caught.value.found == "6 ranks"
    assert caught.value.fix == "add `lanes: 6` to the recipe"
    assert prepared(recipe_in(tmp_path, *two_sources(tmp_path), lanes=12), world_size=6).lanes == 12


def test_repeat_goes_on_and_reshuffles_every_epoch(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, write_text(tmp_path, "a", lengths_of(1, 2, 20)), lanes=1)
    rows = plan.window(0, 0).picks.row[: 43 * 4].reshape(4, 43)
    assert np.sort(rows).tolist() == [list(range(43))] * 4
    assert len({tuple(epoch) for epoch in rows.tolist()}) == 4


@pytest.mark.parametrize("batching", BATCHINGS)
def test_stop_first_ends_with_the_last_row_of_a_source(tmp_path: Path, batching: dict) -> None:
    a, b = two_sources(tmp_path)
    recipe = {"exhaustion": "stop_first", "batching": batching, "weights_in": "samples", "lanes": 4}
    counts = counts_of(plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 1}, **recipe))
    assert counts["b"] == 20
    assert 10 <= counts["a"] <= 30


@pytest.mark.parametrize("batching", BATCHINGS)
def test_stop_all_ends_when_every_source_was_seen_whole(tmp_path: Path, batching: dict) -> None:
    a, b = two_sources(tmp_path)
    recipe = {"exhaustion": "stop_all", "batching": batching, "weights_in": "samples", "lanes": 4}
    counts = counts_of(plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 1}, **recipe))
    assert counts["a"] == 69
    assert 40 <= counts["b"] <= 100


@pytest.mark.parametrize("batching", BATCHINGS)
def test_drop_takes_every_row_once_the_small_source_first(tmp_path: Path, batching: dict) -> None:
    a, b = two_sources(tmp_path)
    recipe = {"exhaustion": "drop", "batching": batching, "weights_in": "samples", "lanes": 4}
    plan = plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 1}, **recipe)
    assert Counter(named_rows(plan, take(plan))) == once_each(a=69, b=20)
    first, second = plan.streams[0].segments[0].pieces
    assert first.members.tolist() == [0, 1]
    assert second.members.tolist() == [0]
    assert second.first_draw == first.stop_draw
    assert second.stop_draw == 89


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("lanes", [1, 4])
def test_epochs_take_every_row_once_a_pass(tmp_path: Path, batching: dict, lanes: int) -> None:
    plan = plan_in(tmp_path, *two_sources(tmp_path), epochs=3, batching=batching, lanes=lanes)
    rows = named_rows(plan, take(plan))
    assert Counter(rows) == once_each(3, a=69, b=20)
    assert [epoch for _, epoch, _ in rows] == [0] * 89 + [1] * 89 + [2] * 89  # no window crosses a pass


SHARDS = [[n] * count for n, count in zip((10, 20, 30, 40, 50, 60), (9, 12, 7, 11, 10, 8), strict=True)]


@pytest.mark.parametrize("shuffle", ["none", "global", "shards"])
def test_each_part_reads_only_its_own_shards_and_together_every_row_once(tmp_path: Path, shuffle: str) -> None:
    source = {**write_text(tmp_path, "a", SHARDS), "shuffle": shuffle}
    plan = plan_in(tmp_path, source, parts=3, lanes=6, epochs=2, batching={"type": "fixed", "size": 2})
    steps = take(plan)
    assert Counter(named_rows(plan, steps)) == once_each(2, a=57)
    assert [stream.segments[0].lanes for stream in plan.streams] == [2, 2, 2]
    ends = np.cumsum([len(shard) for shard in SHARDS])
    read = [set(), set(), set()]
    for batch in real_batches(steps):
        assert batch.stream == batch.lane % 3
        read[batch.stream] |= set(np.searchsorted(ends, batch.picks.row, side="right").tolist())
    assert read == [{0, 1}, {2, 3}, {4, 5}]


def test_parts_of_an_endless_stream_never_leave_their_shards(tmp_path: Path) -> None:
    a = write_text(tmp_path, "a", SHARDS)
    b = write_text(tmp_path, "b", [[5] * 20, [6] * 20])
    plan = plan_in(tmp_path, {**a, "weight": 3}, {**b, "weight": 1}, parts=2, lanes=4, batching=BATCHINGS[0])
    rows: dict[tuple[str, int], set[int]] = {}
    for batch in real_batches(take(plan, 120)):
        for source, row in zip(batch.picks.source.tolist(), batch.picks.row.tolist(), strict=True):
            rows.setdefault(("ab"[source], batch.stream), set()).add(row)
    assert rows["b", 0] == set(range(20))
    assert rows["b", 1] == set(range(20, 40))
    assert rows["a", 0] | rows["a", 1] == set(range(57))
    assert not rows["a", 0] & rows["a", 1]


def test_too_few_shards_for_the_parts_are_refused(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", [[5] * 10, [5] * 10])
    with pytest.raises(RecipeError) as caught:
        plan_in(tmp_path, source, parts=3, lanes=3)
    assert caught.value.problem == 'sources[0] "a": cannot be cut into 3 parts of whole shards'
    assert caught.value.found == "2 shards with rows, 20 rows"


def test_as_many_shards_as_parts_are_enough_however_uneven(tmp_path: Path) -> None:
    for number, sizes in enumerate([(90, 5, 5), (5, 90, 5), (5, 5, 90)]):
        source = write_text(tmp_path, f"s{number}", [[5] * size for size in sizes])
        plan = plan_in(tmp_path, source, parts=3, lanes=3, epochs=1)
        assert [stream.orders[0].num_rows for stream in plan.streams] == list(sizes)


def groups(folder: Path, **speech: Any) -> list[dict[str, Any]]:
    calls = write_speech(folder, "calls", [[0.5 + 0.1 * i for i in range(25)], [1.5] * 12])
    return [
        {"name": "speech", "batching": {"type": "bucket", "num": 3, "budget": 8}, "sources": [calls], **speech},
        {"name": "text", "batching": BATCHINGS[3], "sources": [two_sources(folder)[0]], **speech},
    ]


def test_zipped_sub_streams_share_every_step(tmp_path: Path) -> None:
    speech, text = groups(tmp_path)
    plan = plan_in(tmp_path, {**speech, "lanes": 3}, {**text, "lanes": 1}, fuse="zip", lanes=4)
    for step in take(plan, 50):
        assert [batch.stream for batch in step.micro_batches] == [0, 0, 0, 1]
    assert [stream.name for stream in plan.streams] == ["speech", "text"]


def test_zipped_passes_go_on_until_the_longer_one_ends(tmp_path: Path) -> None:
    speech, text = groups(tmp_path)
    plan = plan_in(tmp_path, {**speech, "lanes": 3}, {**text, "lanes": 1}, fuse="zip", lanes=4, epochs=1)
    steps = take(plan)
    assert Counter(named_rows(plan, steps)) == once_each(calls=37, a=69)
    assert [len(step.micro_batches) for step in steps] == [4] * len(steps)
    for batch in (batch for step in steps for batch in step.micro_batches if batch.idle):
        assert batch.num_samples == 0


def test_sub_streams_by_weight_take_whole_steps(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, *groups(tmp_path), fuse={"text": 3, "speech": 1}, lanes=2)
    owners = Counter()
    for step in take(plan, 1024):
        (owner,) = {plan.streams[batch.stream].name for batch in step.micro_batches}
        owners[owner] += 1
    assert owners == {"text": 768, "speech": 256}


def test_one_group_with_its_own_batching_is_a_stream_of_its_own(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, groups(tmp_path)[0], lanes=2, epochs=1)
    assert Counter(named_rows(plan, take(plan))) == once_each(calls=37)
