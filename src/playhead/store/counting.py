"""Counted requests: a wrapper around any storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import sub

from playhead.store.files import Buffer, Files, Ranges, Stamp


@dataclass(frozen=True)
class CountingFiles:
    """`counts` has the number of calls of each method, of ranges and of bytes read, in this process."""

    files: Files
    counts: Counter[str] = field(default_factory=Counter)

    def list(self, pattern: str) -> Sequence[str]:
        self.counts["list"] += 1
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        self.counts["stamp"] += 1
        return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        self.counts.update(read=1, ranges=len(ranges.firsts), bytes=sum(map(sub, ranges.ends, ranges.firsts)))
        return self.files.read(path, stamp, ranges, into)
