"""Counted requests: a wrapper around any storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import sub
from threading import Lock

from playhead.store.files import Buffer, Files, Ranges, Stamp


class CountingFiles:
    """`counts` has the number of calls of each method, of ranges and of bytes requested; those of a copy start at 0."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.counts: Counter[str] = Counter()
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return CountingFiles, (self.files,)

    def list(self, pattern: str) -> Sequence[str]:
        self._count(list=1)
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        self._count(stamp=1)
        return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        self._count(read=1, ranges=len(ranges.firsts), bytes=sum(map(sub, ranges.ends, ranges.firsts)))
        return self.files.read(path, stamp, ranges, into)

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self.counts.update(numbers)
