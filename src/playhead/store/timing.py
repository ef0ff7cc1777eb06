"""Where time goes: a wrapper that times the requests to any storage, and the list that receives the spans."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from time import monotonic
from typing import Literal

from playhead.store.files import Buffer, Files, Ranges, Stamp

TimedStage = Literal["open", "read", "map", "cache", "cached"]

# A stage, when it began and ended (by time.monotonic), the file (or None), the bytes and the requests. The shard cache
# takes no time of its own: "cache" has its hits and misses, "cached" the bytes that it gave.
Span = tuple[TimedStage, float, float, str | None, int, int]

# The spans of the work that the current thread does; None: nobody wants them. A list, since threads of one
# micro-batch append to it at once.
SPANS: ContextVar[list[Span] | None] = ContextVar("playhead_spans", default=None)

_MOST_SEEN = 1 << 16


class TimedFiles:
    """Law: it reads the same bytes as the wrapped storage. Every call appends one span, if spans are collected.

    The first request for a file, or asking for its stamp, is "open"; later ones are "read".
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._seen: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return TimedFiles, (self.files,)

    def list(self, pattern: str) -> Sequence[str]:
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        spans = SPANS.get()
        if spans is None:
            return self.files.stamp(path)
        began = monotonic()
        try:
            return self.files.stamp(path)
        finally:
            self._see(path)
            spans.append(("open", began, monotonic(), path, 0, 1))

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        spans = SPANS.get()
        if spans is None:
            return self.files.read(path, stamp, ranges, into)
        began = monotonic()
        try:
            return self.files.read(path, stamp, ranges, into)
        finally:
            ended = monotonic()
            stage: TimedStage = "read" if path in self._seen else "open"
            if stage == "open":
                self._see(path)
            num_bytes = sum(ranges.ends) - sum(ranges.firsts)
            spans.append((stage, began, ended, path, num_bytes, len(ranges.firsts)))

    def _see(self, path: str) -> None:
        if len(self._seen) >= _MOST_SEEN:  # rows may name any number of media
            self._seen.clear()
        self._seen.add(path)
