"""Files read from the copies in a shard cache where it has them: a wrapper around any storage.

It only reads: read/cache_filler copies and evicts. What is not there yet is read past the cache by byte range, at first
freely, so that nothing waits for a shard. But where that becomes more than a tenth of what is to be copied, the storage
would only be read twice: a reader then waits for a copy that is on its way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Lock
from weakref import WeakSet

from playhead.store.files import Buffer, Files, Ranges, Stamp, check_buffers, check_ranges
from playhead.store.shard_cache.counters import ProcessCounters, read_status, spend_direct
from playhead.store.shard_cache.directory import FILLER_LOCK, CacheDirectory, is_locked
from playhead.store.shard_cache.queue import is_within, queued_spans
from playhead.store.shard_cache.ranks import any_lives
from playhead.store.shard_cache.units import LIST_SECONDS, CachedFile, CachedUnits, Cover, read_covers
from playhead.store.timing import SPANS

EXTRA = 10  # past the cache is read at most a tenth of what is copied into it
_POLL_SECONDS = 0.004
_START_SECONDS = 30.0  # for a filler to start: it imports and plans
_STALL_SECONDS = 60.0  # for one that runs to make progress: at 2 MB/s its first answers take half a minute


class CachingFiles:
    """Law: it reads the same bytes as the wrapped storage, of the file that was stamped."""

    def __init__(self, files: Files, root: str) -> None:
        self.files, self.root = files, root
        self._directory = CacheDirectory(Path(root))
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Begin with nothing open. In a fork another thread may have held the lock: it is replaced."""
        self._lock = Lock()
        self._looked_at = -inf
        self._units: CachedUnits | None = None
        self._counters: ProcessCounters | None = None
        self._filler = _FillerWatch(self._directory)

    def __reduce__(self) -> tuple[object, ...]:
        return CachingFiles, (self.files, self.root)

    def list(self, pattern: str) -> Sequence[str]:
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        units = None if stamp is None else self._current_units()
        if units is None or stamp is None or max(ranges.ends, default=0) > stamp.size:  # no unit will ever have those
            return self.files.read(path, stamp, ranges, into)
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        began = time.monotonic_ns()
        file = units.file(path, stamp)
        covers: Sequence[Cover] = units.covers(file, ranges)
        blocked = None in covers
        if blocked and not self._may_pass(units, _missing(ranges, covers)):
            covers = self._awaited(units, file, ranges)
        found: dict[int, Buffer] = {**read_covers(covers)}
        missing = [i for i in range(len(covers)) if i not in found]
        if into is not None:
            for i, data in found.items():
                into[i][:] = data
        if missing:
            wanted = Ranges([ranges.firsts[i] for i in missing], [ranges.ends[i] for i in missing])
            direct = self.files.read(path, stamp, wanted, None if into is None else [into[i] for i in missing])
            found |= zip(missing, direct, strict=True)
        self._count(ranges, missing, time.monotonic_ns() - began if blocked or missing else 0)
        return [found[i] for i in range(len(covers))] if into is None else into

    def _count(self, ranges: Ranges, missing: Sequence[int], blocked_ns: int) -> None:
        direct = sum(ranges.ends[i] - ranges.firsts[i] for i in missing)
        hit_bytes = sum(ranges.ends) - sum(ranges.firsts) - direct
        spans = SPANS.get()
        if spans is not None:
            now = time.monotonic()
            spans.append(("cache", now, now, None, len(ranges.firsts) - len(missing), len(missing)))
            spans.append(("cached", now, now, None, hit_bytes, 0))
        if self._counters is not None:
            self._counters.add(
                hits=len(ranges.firsts) - len(missing),
                misses=len(missing),
                hit_bytes=hit_bytes,
                direct_bytes=direct,
                blocked_ns=blocked_ns,
            )

    def _current_units(self) -> CachedUnits | None:
        """The units of the current generation, which is looked up now and then; None where there is no cache.

        Without a rank that lives, nobody has had the units checked.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at > LIST_SECONDS:
                self._looked_at = now
                marker = self._directory.marker() if any_lives(self._directory) else None
                if marker is None:
                    self._units = None
                elif self._units is None or self._units.generation != marker.generation:
                    self._units = CachedUnits(self._directory, marker.generation)
                    self._counters = self._counters or ProcessCounters(self._directory)
            return self._units

    def _may_pass(self, units: CachedUnits, num_bytes: int) -> bool:
        """Whether bytes may be read past the cache now; if so, they are counted."""
        status = read_status(self._directory)
        if status.generation != units.generation:
            return True
        return spend_direct(self._directory, num_bytes, max(status.total_bytes, status.copied_bytes) // EXTRA)

    def _awaited(self, units: CachedUnits, file: CachedFile, ranges: Ranges) -> Sequence[Cover]:
        """Wait for units that are on their way. What will not come is counted as read past the cache."""
        while True:
            covers = units.covers(file, ranges)
            if None not in covers:
                return covers
            progresses = self._current_units() is units and self._filler.makes_progress()
            if not progresses or (self._filler.runs and not self._all_queued(file, ranges, covers)):
                covers = units.covers(file, ranges, anew=True)  # it may have come and left the queue meanwhile
                spend_direct(self._directory, _missing(ranges, covers), None)
                return covers
            time.sleep(_POLL_SECONDS)

    def _all_queued(self, file: CachedFile, ranges: Ranges, covers: Sequence[Cover]) -> bool:
        """Whether all that is missing is on its way, or there; also while that cannot be known."""
        queued = queued_spans(self._directory, file.key)
        if queued is None:
            return True
        spans = sorted([*file.spans, *queued])
        missing = [place for *place, pieces in zip(*ranges, covers, strict=True) if pieces is None]
        return all(is_within(first, end, spans) for first, end in missing)


class _FillerWatch:
    """Whether the filler is worth waiting for, as seen by one process.

    One that makes no progress for a while, or does not start, is waited for no longer, by any reader of the process,
    until something changes.
    """

    def __init__(self, directory: CacheDirectory) -> None:
        self._directory = directory
        self._seen: tuple[int, bool] | None = None
        self._since = 0.0
        self.runs = False

    def makes_progress(self) -> bool:
        events = read_status(self._directory).num_events
        self.runs = False
        with suppress(OSError):  # too many open files
            self.runs = events > 0 and is_locked(self._directory.root / FILLER_LOCK)
        now, seen = time.monotonic(), (events, self.runs)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since < (_STALL_SECONDS if self.runs else _START_SECONDS)


def caching_files(files: object) -> CachingFiles | None:
    """The shard cache that a storage reads through, inside its wrappers; None if there is none."""
    while files is not None and not isinstance(files, CachingFiles):
        files = getattr(files, "files", None)
    return files


_all: WeakSet[CachingFiles] = WeakSet()


def _after_fork() -> None:
    for files in _all:
        files.begin()


os.register_at_fork(after_in_child=_after_fork)


def _missing(ranges: Ranges, covers: Sequence[Cover]) -> int:
    """The bytes of the ranges that are not covered."""
    return sum(end - first for first, end, pieces in zip(*ranges, covers, strict=True) if pieces is None)
