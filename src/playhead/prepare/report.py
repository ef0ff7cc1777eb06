"""The reports of `prepare`: while it runs, and at the end."""

from __future__ import annotations

from msgspec import Struct

from playhead.index.selection import Loss


class Progress(Struct, frozen=True):
    """A shard is scanned: `done_bytes` of the source's `total_bytes` to scan are scanned so far."""

    source: str
    shard: str
    num_rows: int
    done_shards: int
    total_shards: int
    done_bytes: int
    total_bytes: int


class MeasureProgress(Struct, frozen=True):
    """Some rows of a shard are measured or verified: `done_rows` of the source's `total_rows` are so far."""

    source: str
    shard: str
    done_rows: int
    total_rows: int
    doing: str = "measuring"


class Compiling(Struct, frozen=True):
    """The kernels of the plan are being compiled, or loaded from the cache."""


Event = Progress | MeasureProgress | Compiling


class SourceReport(Struct, frozen=True):
    """One source: what it holds and what was done for it.

    In a dry run the numbers of rows are estimates, and `scanned_*` and `measured_rows` are what would be done.
    `changed` is about the index and the selection; sidecars are counted apart. `damaged` are the arrays that were not
    what had been written, and were made again. `num_skipped` counts what is in its files and is no row: members of tars
    that belong to no sample, rows that are marked to be left out. `empty_shards` are those without a row. `evaluation`
    is the evaluation set that the source is in.
    """

    name: str
    path: str
    directory: str
    num_shards: int
    scanned_shards: int
    scanned_bytes: int
    reused_shards: int
    total_bytes: int
    num_rows: int
    length_sum: int
    selected_rows: int
    selected_length: int
    losses: tuple[Loss, ...]
    num_unknown_ids: int
    index_bytes: int
    changed: bool
    measured_rows: int = 0
    num_sidecars: int = 0
    damaged: tuple[str, ...] = ()
    verified_rows: int = 0
    num_skipped: int = 0
    evaluation: str | None = None
    empty_shards: tuple[str, ...] = ()
    format: str | None = None


class PrepareReport(Struct, frozen=True):
    """The whole recipe. `changed` is false when nothing was written."""

    sources: tuple[SourceReport, ...]
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        return any(source.changed or source.num_sidecars for source in self.sources)
