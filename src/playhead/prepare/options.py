"""Options of a `prepare` run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from playhead.formats.contract import ScanLimits
from playhead.jobs import Engine, Local
from playhead.prepare.report import Event
from playhead.store import Files, any_in_process, num_costly

_CHUNKS_IN_MEMORY = 64  # a chunk's bytes, its decoded rows and its arrays, with some margin
_LARGEST_CHUNK = 1 << 19  # larger is slower, beyond the processor's cache
_SMALL = 32 << 20
_SMALL_SHARD = 4 << 20
_AT_ONCE = 16
_FEW_ROWS = 1 << 10  # a map may take milliseconds a row


@dataclass(frozen=True)
class PrepareOptions:
    """Options of a run. Law: no option changes the bytes of an index."""

    workers: int
    memory_bytes: int
    files: Files
    indexes_root: str | None = None
    force: bool = False
    sidecars: bool = False
    processes: bool | None = None
    progress: Callable[[Event], None] | None = None
    measure: bool = False
    verify: bool = False
    engine: Engine | None = None

    @property
    def limits(self) -> ScanLimits:
        chunk = max(1 << 12, min(_LARGEST_CHUNK, self.memory_bytes // _CHUNKS_IN_MEMORY))
        return ScanLimits(chunk, max(chunk, self.memory_bytes // 8), self.indexes_root)

    def engine_for(self, num_shards: int, num_bytes: int, paths: Collection[str]) -> Engine:
        """Processes take a second to start: little work is done in this process, unless an engine was given.

        So is work on files that only this process can read; and on many small files in a store, by threads, since
        their requests take longer than their bytes.
        """
        is_small = num_bytes < _SMALL or num_bytes < _SMALL_SHARD * num_shards
        if self.engine is None and self.processes is None and is_small and num_costly(self.files, paths) > 1:
            return Local(min(num_shards, _AT_ONCE), threads=True)
        return self.engine or Local(self._workers_where(num_bytes >= _SMALL, num_shards, paths))

    def engine_to_measure(self, num_rows: int, paths: Collection[str]) -> Engine:
        return self.engine or Local(self._workers_where(num_rows >= _FEW_ROWS, num_rows, paths))

    def _workers_where(self, much: bool, num_jobs: int, paths: Collection[str]) -> int:
        processes = self.processes
        if processes is None:
            processes = much and not any_in_process(self.files, paths)
        wanted = min(self.workers, num_jobs) if processes else 1
        # One forced process is still a separate process.
        return max(2, wanted) if self.processes else wanted
