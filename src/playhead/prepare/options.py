"""Options of a `prepare` run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from playhead.formats.contract import ScanLimits
from playhead.jobs import Engine, Local
from playhead.prepare.report import Event
from playhead.store import Files, any_in_process

_CHUNKS_IN_MEMORY = 64  # a chunk's bytes, its decoded rows and its arrays, with room to spare
_LARGEST_CHUNK = 1 << 19  # beyond the processor's cache, larger is slower
_SMALL = 32 << 20
_FEW_ROWS = 1 << 10  # a map may take milliseconds a row


@dataclass(frozen=True)
class PrepareOptions:
    """Law: none of it changes the bytes of an index."""

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

    def engine_for(self, num_shards: int, num_bytes: int, paths: Iterable[str]) -> Engine:
        """Processes cost a second to start: little work is done here, unless an engine was asked for.

        So is work on files that no other process sees.
        """
        return self.engine or Local(self._workers_where(num_bytes >= _SMALL, num_shards, paths))

    def engine_to_measure(self, num_rows: int, paths: Iterable[str]) -> Engine:
        return self.engine or Local(self._workers_where(num_rows >= _FEW_ROWS, num_rows, paths))

    def _workers_where(self, much: bool, num_jobs: int, paths: Iterable[str]) -> int:
        processes = self.processes
        if processes is None:
            processes = much and not any_in_process(self.files, paths)
        wanted = min(self.workers, num_jobs) if processes else 1
        # One forced process is still a process of its own.
        return max(2, wanted) if self.processes else wanted
