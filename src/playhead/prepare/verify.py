"""Every row of a source read once, without keeping it: `prepare --verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from playhead.errors import DataError, Failure, PlayheadError
from playhead.formats.contract import Format, RowReader
from playhead.formats.rows import Fetch
from playhead.index.layout import Layout
from playhead.index.opened import Index
from playhead.prepare.merge import ShardPiece, chunks_of
from playhead.prepare.options import PrepareOptions
from playhead.prepare.report import MeasureProgress
from playhead.prepare.stretches import Stretch, batches, cut
from playhead.read.row_decoder import read_rows
from playhead.recipe.values import Source
from playhead.store import Files

_ROWS_AT_ONCE = 1 << 10


@dataclass(frozen=True)
class VerifyJob:
    """Some rows to read. It stops at the first that does not parse."""

    format: Format
    source: Source
    stretch: Stretch
    files: Files
    batch_bytes: int

    @property
    def name(self) -> str:
        return self.stretch.name

    def run(self) -> None:
        reader, fetch = self.format.open(self.source, self.files), self.stretch.fetch(self.files)
        for low, high in batches(self.stretch, self.batch_bytes, _ROWS_AT_ONCE):
            try:
                read_rows(reader.read, self.stretch.rows(low, high, fetch))
            except DataError:
                self._one_by_one(reader, fetch, low, high)
                raise

    def _one_by_one(self, reader: RowReader, fetch: Fetch, low: int, high: int) -> None:
        """Raise an error for the first bad row, with its number."""
        for row in range(low, high):
            rows = self.stretch.rows(row, row + 1, fetch)
            try:
                read_rows(reader.read, rows)
            except DataError as error:
                error.at_row(f'source "{self.source.name}", raw row {self.stretch.raw_row + row:,}', rows.place(0))
                raise


def verify_rows(layout: Layout, index: Index, options: PrepareOptions) -> list[Failure]:
    """Read every row before selection; the first that does not parse in each stretch is a failure."""
    source = layout.leaf.source.name
    failures: list[Failure] = []
    done_rows = 0

    def done(job: VerifyJob, outcome: PlayheadError | None) -> None:
        nonlocal done_rows
        done_rows += job.stretch.num_rows
        if outcome is not None:
            failures.append(Failure(source, job.stretch.shard.name, str(outcome)))
        elif options.progress is not None:
            shard = job.stretch.shard.name
            options.progress(MeasureProgress(source, shard, done_rows, index.meta.num_rows, "verifying"))

    options.engine_to_measure(index.meta.num_rows, index.stamps).run(_jobs(layout, index, options), done)
    return failures


def _jobs(layout: Layout, index: Index, options: PrepareOptions) -> Iterator[VerifyJob]:
    format_, source, chunk_bytes = layout.registered.format, layout.leaf.source, options.limits.chunk_bytes
    for i, entry in enumerate(index.meta.shards):
        chunks = chunks_of(ShardPiece(entry, old_shard=i), index)
        for stretch in cut(chunks, index.meta.tracks, index.shards[i], entry.files, int(index.shard_starts[i])):
            yield VerifyJob(format_, source, stretch, options.files, chunk_bytes)
