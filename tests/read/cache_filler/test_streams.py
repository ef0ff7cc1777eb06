"""What the steps of a stream need of a shard cache: units, and the bytes that would be read of each without it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cached_runs import ROWS_IN_SHARD, by_shards, recipe_of, write_shards
from playhead import Recipe
from playhead.read.cache_filler import filling
from playhead.read.cache_filler.fetch_order import FetchOrder
from playhead.read.cache_filler.filling import _AHEAD, Filler, _Member
from playhead.read.cache_filler.streams import CachedStream, StreamKey
from playhead.recipe.storage import stored_files
from playhead.store.shard_cache.directory import Unit, open_directory
from playhead.store.shard_cache.ranks import LiveRank, RankRecord

BLOCK_ROWS = 8


@pytest.fixture(params=["jsonl", "arrow", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stream_of(folder: Path, kind: str, unit: str = "shard", **fields: Any) -> CachedStream:
    data = folder / "data"
    write_shards(data, kind, num_shards=4)
    return open_stream(recipe_of(data, folder, data, {"unit": unit}, **{**by_shards(), **fields}))


def open_stream(recipe: Recipe) -> CachedStream:
    return CachedStream(recipe, StreamKey("", None, 1), stored_files(recipe))


def steps(stream: CachedStream) -> Iterator[tuple[int, dict[Unit, int]]]:
    return stream.steps(tuple(stream.start().to_record()), [0])


def test_an_epoch_reads_about_as_many_bytes_of_a_shard_as_it_has(tmp_path: Path, kind: str) -> None:
    """Rows of Arrow are read by range, and those of a Parquet row group with all of it, once in a step."""
    read: dict[Unit, int] = {}
    for _, needs in steps(stream_of(tmp_path, kind)):
        for unit, num_bytes in needs.items():
            assert 0 < num_bytes <= unit.size
            read[unit] = read.get(unit, 0) + num_bytes
    assert len(read) == 4
    for unit, num_bytes in read.items():
        if kind == "parquet":
            assert unit.size < num_bytes <= BLOCK_ROWS * unit.size
        else:
            assert 0.9 * unit.size < num_bytes < 1.1 * unit.size


@pytest.mark.parametrize("unit", ["block", "range"])
def test_blocks_are_units_each_once_in_a_step(tmp_path: Path, unit: str) -> None:
    found = [needs for _, needs in steps(stream_of(tmp_path, "arrow", unit))]
    blocks = {each for needs in found for each in needs}
    assert len(blocks) == 4 * ROWS_IN_SHARD // BLOCK_ROWS
    totals = {block: sum(needs.get(block, 0) for needs in found) for block in blocks}
    for block, num_bytes in totals.items():
        assert num_bytes <= BLOCK_ROWS * block.size
        assert 0.8 * block.size < num_bytes < 1.2 * block.size


def test_an_endless_stream_over_less_than_the_cache_is_planned_a_few_times_the_space_ahead(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, "arrow", epochs=None)
    max_bytes = 3 * next(iter(next(steps(stream))[1])).size
    about = RankRecord("", None, 0, 1, tuple(stream.start().to_record()), 0)
    member = _Member(stream, [LiveRank("0", about, 0)], FetchOrder(max_bytes))
    for _ in range(10_000):
        if not member.plan_some():
            break
    else:
        pytest.fail("it is planned without end")
    assert _AHEAD * max_bytes <= member.order.ahead_bytes <= (_AHEAD + 1) * max_bytes
    planned = dict(islice(steps(stream), member.planned_to))
    assert member.order.ahead_bytes == sum(sum(needs.values()) for needs in planned.values())
    member.order.advance(member.planned_to)
    assert (member.order.ahead_bytes, member.order.known_bytes, member.order.num_uses) == (0, 0, 0)


@pytest.mark.parametrize("most_uses", [100_000, 50, 20, 14])
@pytest.mark.parametrize("epochs", [1, 2])
def test_every_shard_is_fetched_once_an_epoch_however_little_of_it_is_planned_when_it_is_first_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int, most_uses: int
) -> None:
    """Of far more shards than have room: each is worth its fetch, for all of it is read in a few steps."""
    monkeypatch.setattr(filling, "_MOST_USES", most_uses)
    data = tmp_path / "data"
    write_shards(data, num_shards=24)
    stream = open_stream(recipe_of(data, tmp_path, data, {}, **by_shards(2), epochs=epochs))
    order = FetchOrder(5 * max(path.stat().st_size for path in data.iterdir()), lead_bytes=300_000)
    rank = LiveRank("0", RankRecord("", None, 0, 1, tuple(stream.start().to_record()), 0), 0)
    member = _Member(stream, [rank], order)
    fetched = []
    num_steps = 24 * ROWS_IN_SHARD * epochs // 16
    for step in range(num_steps):
        planned = True
        while planned:
            planned = member.plan_some()
            member.decide_some(all_known=not planned)
        while member.next_ready() is not None:
            fetched.append(member.decided[0].unit)
            member.take()
        member.advance([LiveRank("0", rank.about, step + 1)])
    assert max(fetched.count(unit) for unit in {*fetched}) <= epochs
    assert 24 * epochs - 5 * (epochs - 1) <= len(fetched) <= 24 * epochs


def test_of_streams_with_other_units_only_what_can_be_fetched_at_once_is_awaited(tmp_path: Path) -> None:
    """A step of the first may read a row that the second fetches much later, perhaps when it is its turn again."""
    data = tmp_path / "data"
    write_shards(data, num_shards=4)
    filler = Filler(open_directory(str(tmp_path / "copies")), print)
    for number, unit in enumerate(["shard", "range"]):
        stream = open_stream(recipe_of(data, tmp_path, data, {"unit": unit}, shuffle="global", seed=number))
        about = RankRecord("", None, 0, 1, tuple(stream.start().to_record()), 0)
        order = FetchOrder(120_000 if unit == "range" else 1 << 30)
        member = _Member(stream, [LiveRank("0", about, 0)], order)
        while member.plan_some():
            pass
        member.decide_some(all_known=True)
        filler._members[StreamKey(unit, None, 1)] = member
    small = filler._members[StreamKey("range", None, 1)]
    late = {fetch.unit for fetch in small.decided if not small.is_ready(fetch)}
    awaited = {*filler._awaited()}
    assert late
    assert awaited
    assert awaited.isdisjoint(late)
    del filler._members[StreamKey("shard", None, 1)]
    assert late & {*filler._awaited()}
