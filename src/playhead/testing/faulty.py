"""Storage that is slow or fails, for tests: a wrapper around any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal

from playhead.errors import StoreError
from playhead.store import Access, Buffer, Files, Ranges, Stamp, access_of
from playhead.store.files import changed, too_short

Fault = Literal["error", "short", "changed"]
Fail = Callable[[int, str, str], Fault | None]


def never(number: int, method: str, path: str) -> Fault | None:  # noqa: ARG001 - a `Fail`
    """No request fails."""
    return None


class FaultyFiles:
    """Storage with latency and faults.

    Every request first takes `latency_seconds`; where that is not 0, readers treat requests as expensive. Then
    `fail(number, method, path)` says how it fails, if at all: the number of the request in this process, from 0,
    "list", "stamp" or "read", and its path. The faults:

    - "error": a StoreError, as of a store that does not answer;
    - "short": an answer cut short, which is a StoreError too;
    - "changed": a stamp other than the file's; a read finds the file changed, which is a StoreError.

        files = FaultyFiles(LocalFiles(), fail=lambda number, method, path: "error" if number == 3 else None)
    """

    def __init__(self, files: Files, latency_seconds: float = 0.0, fail: Fail = never) -> None:
        self.files = files
        self.latency_seconds = latency_seconds
        self.fail = fail
        self._numbers = count()

    def __reduce__(self) -> tuple[object, ...]:
        return FaultyFiles, (self.files, self.latency_seconds, self.fail)

    def access(self, path: str) -> Access:
        found = access_of(self.files, path)
        return found._replace(requests_cost=found.requests_cost or self.latency_seconds > 0)

    def list(self, pattern: str) -> Sequence[str]:
        if self._fault("list", pattern) is not None:
            raise _failed(pattern)
        return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        fault = self._fault("stamp", path)
        if fault in ("error", "short"):
            raise _failed(path)
        found = self.files.stamp(path)
        return found if fault is None else _other(found)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        fault = self._fault("read", path)
        if fault == "error":
            raise _failed(path)
        if fault == "short" and ranges.firsts:
            raise too_short(path, ranges.firsts[-1], ranges.ends[-1], (ranges.ends[-1] - ranges.firsts[-1]) // 2)
        if fault == "changed":
            now = stamp or self.files.stamp(path)
            raise changed(path, _other(now), now)
        return self.files.read(path, stamp, ranges, into)

    def _fault(self, method: str, path: str) -> Fault | None:
        if self.latency_seconds:
            time.sleep(self.latency_seconds)
        return self.fail(next(self._numbers), method, path)


def _other(stamp: Stamp) -> Stamp:
    return Stamp(stamp.size, stamp.mark ^ 1)


def _failed(path: str) -> StoreError:
    return StoreError(f"{path}: cannot be read", found="a fault that was asked for", fix="none: this is a test")
