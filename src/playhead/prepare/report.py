"""What `prepare` tells: while it runs, and at the end."""

from __future__ import annotations

from msgspec import Struct

from playhead.index.selection import Loss


class Progress(Struct, frozen=True):
    """A shard is done: `done_bytes` of the source's `total_bytes` to scan are scanned so far."""

    source: str
    shard: str
    num_rows: int
    done_shards: int
    total_shards: int
    done_bytes: int
    total_bytes: int


class Failure(Struct, frozen=True):
    """What went wrong, and where: a shard, or a source as a whole."""

    source: str
    place: str
    problem: str


class SourceReport(Struct, frozen=True):
    """One source: what it holds and what was done for it.

    In a dry run the numbers of rows are estimates, and `scanned_*` is what would be scanned.
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


class PrepareReport(Struct, frozen=True):
    """The whole recipe. `changed` is false when there was nothing to do."""

    sources: tuple[SourceReport, ...]
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        return any(source.changed for source in self.sources)
