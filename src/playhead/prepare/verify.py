"""Every row of a source read once, and nothing kept of it: `prepare --verify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from playhead.errors import DataError, Failure, PlayheadError
from playhead.formats.contract import Format, Rows
from playhead.index.layout import Layout
from playhead.index.opened import Index
from playhead.jobs import run_jobs
from playhead.prepare.merge import Piece, chunks_of
from playhead.prepare.options import PrepareOptions
from playhead.prepare.report import MeasureProgress
from playhead.prepare.stretches import Stretch, batches, cut
from playhead.read.faults import placed

_ROWS_AT_ONCE = 1 << 10


@dataclass(frozen=True)
class VerifyJob:
    """Some rows to read. It stops at the first that does not parse."""

    format: Format
    source: str
    options: Mapping[str, Any]
    stretch: Stretch
    batch_bytes: int

    @property
    def name(self) -> str:
        return self.stretch.name

    def run(self) -> None:
        files = self.stretch.files_to_read()
        for low, high in batches(self.stretch, self.batch_bytes, _ROWS_AT_ONCE):
            rows = self.stretch.rows(low, high, files)
            try:
                num_samples = sum(1 for _ in self.format.read(rows, self.options))
            except DataError:
                self._one_by_one(low, high)
                raise
            if num_samples != high - low:
                self._one_by_one(low, high)

    def _one_by_one(self, low: int, high: int) -> None:
        """Raise for the first bad row, with its number."""
        files = self.stretch.files_to_read()
        for row in range(low, high):
            rows = self.stretch.rows(row, row + 1, files)
            try:
                self._check_single(rows)
            except DataError as error:
                number = f"raw row {self.stretch.raw_row + row:,}"
                raise placed(error, self.source, number, rows.place(0)) from error.__cause__

    def _check_single(self, rows: Rows) -> None:
        num_samples = sum(1 for _ in self.format.read(rows, self.options))
        if num_samples != 1:
            raise DataError("the bytes of the row hold another number of samples", found=f"{num_samples:,}")


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

    run_jobs(_jobs(layout, index, options), options.engine_to_measure(index.meta.num_rows), done)
    return failures


def _jobs(layout: Layout, index: Index, options: PrepareOptions) -> Iterator[VerifyJob]:
    source = layout.leaf.source
    for i, entry in enumerate(index.meta.shards):
        chunks = chunks_of(Piece(entry, old_shard=i), index)
        for stretch in cut(chunks, index.shards[i], entry.files, int(index.shard_starts[i])):
            yield VerifyJob(layout.registered.format, source.name, source.options, stretch, options.limits.chunk_bytes)
