"""Measuring one source: every stretch of rows whose lengths are unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from playhead.errors import Failure, PlayheadError
from playhead.index.layout import Layout
from playhead.index.opened import Index
from playhead.jobs.shared_disk import expect_file
from playhead.prepare.measuring import MeasureJob, RowMeter, header_meter_of, length_meter_of
from playhead.prepare.merge import Contents, ShardPiece, chunks_of
from playhead.prepare.options import PrepareOptions
from playhead.prepare.report import MeasureProgress
from playhead.prepare.stretches import cut, has_lengths
from playhead.prepare.survey import parts_directory
from playhead.recipe.values import Recipe


@dataclass(frozen=True)
class Measured:
    """The contents with their lengths, the number of rows measured by this run, and the failures."""

    contents: Contents
    num_rows: int
    failures: list[Failure]


def measure(layout: Layout, recipe: Recipe, contents: Contents, old: Index | None, options: PrepareOptions) -> Measured:
    """Measure rows that neither the old index nor an earlier run has measured. Failures are collected, not raised."""
    meter = length_meter_of(layout, recipe, options.files, options.limits.chunk_bytes)
    chosen = dict(_to_measure(contents.pieces, old, meter.generator_key))
    return _measured_by(meter, chosen, layout, contents, old, options)


def read_headers(
    layout: Layout, recipe: Recipe, contents: Contents, old: Index | None, options: PrepareOptions
) -> Measured:
    """Find the lengths that the scan could not determine, in the headers of media, without running a map."""
    first, chosen = 0, dict[int, int]()
    for i, piece in enumerate(contents.pieces):
        if any(summary.num_unknown for _, summary in piece.parts):
            chosen[i] = first
        first += piece.entry.num_rows
    meter = header_meter_of(layout, recipe, options.files, options.limits.chunk_bytes)
    return _measured_by(meter, chosen, layout, contents, old, options)


def _measured_by(
    meter: RowMeter,
    chosen: dict[int, int],
    layout: Layout,
    contents: Contents,
    old: Index | None,
    options: PrepareOptions,
) -> Measured:
    """The lengths of the chosen shards, each given with its first raw row."""
    run = _MeasureRun(layout, meter, contents, chosen, old, options)
    paths = [file.path for i in chosen for file in contents.pieces[i].entry.files]
    options.engine_to_measure(run.total_rows, paths).run(run.jobs(), run.done)
    pieces = tuple(
        replace(piece, lengths=tuple(run.paths[i])) if i in run.paths else piece
        for i, piece in enumerate(contents.pieces)
    )
    found = replace(contents, pieces=pieces, generator_key=meter.generator_key)
    return Measured(found, run.measured_rows, run.failures)


class _MeasureRun:
    """A measuring run: `paths` are the files of lengths of each shard, by its number, in order."""

    def __init__(
        self,
        layout: Layout,
        meter: RowMeter,
        contents: Contents,
        chosen: dict[int, int],
        old: Index | None,
        options: PrepareOptions,
    ) -> None:
        self._layout, self._meter, self._contents, self._old = layout, meter, contents, old
        self._options = options
        self._chosen = chosen
        self.total_rows = sum(contents.pieces[i].entry.num_rows for i in self._chosen)
        self.paths: dict[int, list[Path]] = {i: [] for i in self._chosen}
        self.measured_rows = self._done_rows = 0
        self.failures: list[Failure] = []

    def jobs(self) -> Iterator[MeasureJob]:
        directory = parts_directory(self._layout)
        for i, raw_row in self._chosen.items():
            piece = self._contents.pieces[i]
            shape = self._contents.shape
            shard = piece.entry.shard(shape.roles)
            for stretch in cut(chunks_of(piece, self._old), shape.tracks, shard, piece.entry.files, raw_row):
                path = stretch.path(directory, self._meter.generator_key)
                self.paths[i].append(path)
                if has_lengths(path, stretch):
                    self._done_rows += stretch.num_rows
                else:
                    yield MeasureJob(self._meter, stretch, path)

    def done(self, job: MeasureJob, outcome: PlayheadError | None) -> None:
        source, shard = self._layout.leaf.source.name, job.stretch.shard.name
        self._done_rows += job.stretch.num_rows
        if outcome is not None:
            self.failures.append(Failure(source, shard, str(outcome)))
            return
        expect_file(job.path)
        self.measured_rows += job.stretch.num_rows
        if self._options.progress is not None:
            self._options.progress(MeasureProgress(source, shard, self._done_rows, self.total_rows))


def _to_measure(
    pieces: tuple[ShardPiece, ...], old: Index | None, generator_key: int | None
) -> Iterator[tuple[int, int]]:
    """The shards whose lengths the old index does not have, each with its first raw row.

    Lengths made with random numbers depend on the seed and on the row, so they are invalid for a shard that moved.
    """
    first = 0
    for i, piece in enumerate(pieces):
        known = old is not None and piece.old_shard is not None and old.meta.generator_key == generator_key
        if known and generator_key is not None:
            assert old is not None
            known = int(old.shard_starts[piece.old_shard]) == first
        if not known:
            yield i, first
        first += piece.entry.num_rows
