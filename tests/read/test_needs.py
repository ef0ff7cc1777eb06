"""What steps need is known before it is read: compared with a slow twin, and with what a loader really asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from corpora import prepared, recipe_in
from deliveries import KINDS, LANES, stream
from playhead import Loader
from playhead.feed.rank_stream import RankStream
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.registry import register
from playhead.formats.rows import Shard
from playhead.formats.spec import Spec
from playhead.plan.step import MicroBatch
from playhead.read.needs import Needed, Sources, needed_steps
from playhead.recipe.values import Source
from playhead.store import Buffer, Files, Ranges, SchemeFiles, Stamp, list_files

NUM_STEPS = 40


def slowly(sources: Sources, batches: Sequence[MicroBatch]) -> dict[str, list[tuple[int, int]]]:
    """Every range of every pick, one by one."""
    found: dict[str, list[tuple[int, int]]] = {}
    for batch in batches:
        for source, row in zip(batch.picks.source.tolist(), batch.picks.row.tolist(), strict=True):
            table = sources[batch.stream][source][1]
            for file in table.where(row).files_of(0):
                first = int(file["offset"])
                found.setdefault(str(file["file"]), []).append((first, first + int(file["num_bytes"])))
    return {path: sorted(ranges) for path, ranges in found.items()}


def plainly(files: Sequence[Needed]) -> dict[str, list[tuple[int, int]]]:
    found = {file.path: sorted(zip(file.firsts.tolist(), file.ends.tolist(), strict=True)) for file in files}
    assert len(found) == len(files), "each file once"
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_steps_need_the_ranges_of_their_picks_on_any_ranks(tmp_path: Path, kind: str) -> None:
    opened = RankStream(stream(tmp_path, kind), None, 0, 1)
    plan, sources = opened.plan, opened.sources
    steps = [step for step, _ in islice(plan.steps(), NUM_STEPS)]
    for ranks, world_size in ((None, 1), ([1], 2), ([0, 3], 4)):
        found = [*islice(needed_steps(plan, sources, None, ranks, world_size), len(steps))]
        assert [needs.step for needs in found] == [step.number for step in steps]
        for step, needs in zip(steps, found, strict=True):
            chosen = [b for b in step.micro_batches if ranks is None or b.lane % world_size in ranks]
            assert plainly(needs.files) == slowly(sources, chosen)
            assert all(sources_stamp(sources, file) == file.stamp for file in needs.files)


def sources_stamp(sources: Sources, file: Needed) -> Stamp:
    tables = [table for found in sources for _, table in found]
    return next(table.index.stamps[file.path] for table in tables if file.path in table.index.stamps)


@pytest.mark.parametrize("kind", ["passes", "by weight", "stop_all"])
def test_what_steps_need_ends_with_the_round_and_begins_at_a_cursor(tmp_path: Path, kind: str) -> None:
    opened = RankStream(stream(tmp_path, kind), None, 0, 1)
    plan, sources = opened.plan, opened.sources
    cursor = plan.seek(5)
    whole = [needs.step for needs in islice(needed_steps(plan, sources), 200)]
    assert whole == [step.number for step, _ in islice(plan.steps(), 200)]
    later = [needs.step for needs in islice(needed_steps(plan, sources, cursor), 195)]
    assert later == whole[5:]


class Recorded:
    """Storage that remembers the ranges read of each file."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.read_ranges: dict[str, list[tuple[int, int]]] = {}

    def list(self, pattern: str) -> Sequence[str]:
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        self.read_ranges.setdefault(path, []).extend(zip(*ranges, strict=True))
        return self.files.read(path, stamp, ranges, into)


@pytest.mark.parametrize("kind", ["fixed", "tar", "zip", "parts"])
def test_a_rank_reads_only_what_its_steps_need(tmp_path: Path, kind: str) -> None:
    recipe = stream(tmp_path, kind)
    storage = Recorded(SchemeFiles())
    loader = Loader(recipe, rank=1, world_size=2, files=storage)
    num_steps = 12
    for _ in islice(loader, num_steps * LANES // 2):
        pass
    opened = RankStream(recipe, None, 0, 1)
    needed: dict[str, list[tuple[int, int]]] = {}
    for needs in islice(needed_steps(opened.plan, opened.sources, None, [1], 2), num_steps):
        for path, ranges in plainly(needs.files).items():
            needed.setdefault(path, []).extend(ranges)
    assert storage.read_ranges.keys() == needed.keys()
    for path, ranges in storage.read_ranges.items():
        for first, end in ranges:
            assert any(low <= first <= end <= high for low, high in needed[path]), (path, first, end)


@register("without_tracks")
class WithoutTracks:
    """A file whose size in bytes is its number of rows; rows have no bytes of their own."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        return [Shard((("file", path),)) for path in list_files(files, source.path)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:  # noqa: ARG002
        yield Chunk(files.stamp(shard.path("file")).size)

    def open(self, source: Source, files: Files) -> RowReader:
        raise NotImplementedError


def test_files_in_which_rows_have_no_bytes_of_their_own_are_needed_whole(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"12345")
    source = {"name": "a", "path": "a.bin", "format": "without_tracks"}
    recipe = recipe_in(tmp_path, source)
    plan = prepared(recipe)
    sources = RankStream(recipe, None, 0, 1).sources
    (needs,) = islice(needed_steps(plan, sources), 1)
    assert plainly(needs.files) == {str(tmp_path / "a.bin"): [(0, 5)]}
