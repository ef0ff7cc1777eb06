"""Many byte ranges of many files at once: grouped by file, read in order of place, joined when near."""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import sub
from threading import Lock
from typing import NamedTuple

from playhead.errors import DataError, StoreError
from playhead.store.local import LocalFile, Stamp, unreadable

NEAR_BYTES = 1 << 14  # reading this much for nothing costs less than another request
MOST_JOINED_BYTES = 1 << 22
MOST_OPEN = 256  # and at most a quarter of what the process may open


class Spans(NamedTuple):
    """Byte ranges as two lists of the same length: the first byte of each, and the byte after its last."""

    firsts: list[int]
    ends: list[int]


class OpenFiles:
    """Files kept open between reads, the least recently used closed first. Threads may share one.

    `expected` says what a file was when it was indexed; one that has changed since, even while it is open, is refused,
    not misread.
    """

    def __init__(self, expected: Callable[[str], Stamp | None] | None = None, most_open: int | None = None) -> None:
        self._expected = expected
        self._most_open = _most_open() if most_open is None else most_open
        self._files: OrderedDict[str, _Owned] = OrderedDict()
        self._lock = Lock()

    def __call__(self, paths: Sequence[str], spans: Spans) -> list[bytes]:
        """The bytes of each range of each path, in the order given."""
        if not paths:
            return []
        if paths.count(paths[0]) == len(paths):
            return self._of_file(paths[0], spans)
        by_path: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            by_path.setdefault(path, []).append(i)
        found: list[bytes] = [b""] * len(paths)
        for path, wanted in by_path.items():
            part = Spans([spans.firsts[i] for i in wanted], [spans.ends[i] for i in wanted])
            for i, data in zip(wanted, self._of_file(path, part), strict=True):
                found[i] = data
        return found

    def _of_file(self, path: str, spans: Spans) -> list[bytes]:
        owned = self._file(path)  # held while it is read: another thread may let go of it meanwhile
        try:
            found = self._one_by_one(owned, spans) if _far_apart(spans.firsts) else self._joined(owned, spans)
        except OSError as error:
            raise unreadable(path, error) from error
        self._check(owned)
        return found

    def _one_by_one(self, owned: _Owned, spans: Spans) -> list[bytes]:
        sizes = list(map(sub, spans.ends, spans.firsts))
        found = list(map(os.pread, repeat(owned.file.descriptor), sizes, spans.firsts))
        if list(map(len, found)) == sizes:
            return found
        return [self._with_patience(owned, first, end) for first, end in zip(*spans, strict=True)]

    def _joined(self, owned: _Owned, spans: Spans) -> list[bytes]:
        """Ranges in order of place, a request for each run of near ones."""
        firsts, ends = spans
        found: list[bytes] = [b""] * len(firsts)
        wanted = sorted(range(len(firsts)), key=firsts.__getitem__)
        descriptor, pread, run = owned.file.descriptor, os.pread, 0
        first, end = firsts[wanted[0]], ends[wanted[0]]
        for position in range(1, len(wanted) + 1):
            if position < len(wanted):
                next_first, next_end = firsts[wanted[position]], ends[wanted[position]]
                if next_first <= end + NEAR_BYTES and next_end - first <= MOST_JOINED_BYTES:
                    end = max(end, next_end)
                    continue
            data = pread(descriptor, end - first, first)
            if len(data) != end - first:
                data = self._with_patience(owned, first, end)
            if position == run + 1:
                found[wanted[run]] = data
            else:
                for i in wanted[run:position]:
                    found[i] = data[firsts[i] - first : ends[i] - first]
            if position < len(wanted):
                run, first, end = position, next_first, next_end
        return found

    def _with_patience(self, owned: _Owned, first: int, end: int) -> bytes:
        """A range that did not come in one piece, piece by piece."""
        data = owned.file.read(first, end - first)
        if len(data) != end - first:
            self._check(owned)
            raise _too_short(owned.file.path, first, end, len(data))
        return data

    def _check(self, owned: _Owned | None) -> None:
        """Refuse a file that was written to since it was opened: what was read of it may be anything."""
        if owned is None or self._expected is None:
            return
        now = owned.stamp_now()
        if now != owned.stamp:
            with self._lock:
                self._files.pop(owned.file.path, None)
            raise _changed(owned.file.path, now, owned.stamp)

    def _file(self, path: str) -> _Owned:
        with self._lock:
            owned = self._files.get(path)
            if owned is not None:
                self._files.move_to_end(path)
                return owned
        owned = self._opened(path)
        expected = self._expected(path) if self._expected is not None else None
        if expected is not None and owned.stamp != expected:
            raise _changed(path, owned.stamp, expected)
        with self._lock:
            self._files[path] = owned
            while len(self._files) > self._most_open:
                self._files.popitem(last=False)
        return owned

    def _opened(self, path: str) -> _Owned:
        """A file newly opened; where that fails, once more with those closed that nobody reads just now."""
        try:
            return _Owned(path)
        except (StoreError, DataError):
            with self._lock:
                self._files.clear()
        try:
            return _Owned(path)
        except DataError as error:  # it was there, and could be read, when it was indexed
            raise StoreError(error.problem, found=error.found, fix=error.fix) from error


def _most_open() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_OPEN if limit == resource.RLIM_INFINITY else max(1, min(MOST_OPEN, limit // 4))


def _far_apart(firsts: list[int]) -> bool:
    """Whether ranges seem spread so widely that hardly any two are near; then sorting them is not worth its time.

    A guess from a few of them: being wrong costs time, and nothing else.
    """
    some = firsts[:: len(firsts) // 8 + 1]
    return max(some) - min(some) > 2 * NEAR_BYTES * len(firsts)


class _Owned:
    """An open file that is closed when nobody holds it any more: a thread may still read what another let go."""

    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(path, error) from error
        self.stamp = self.stamp_now()
        self.file = LocalFile(path, self.stamp.size, self._descriptor)

    def stamp_now(self) -> Stamp:
        about = os.fstat(self._descriptor)
        return Stamp(about.st_size, about.st_mtime_ns)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _too_short(path: str, first: int, end: int, size: int) -> StoreError:
    return StoreError(
        f"{path}: ends before the row does",
        found=f"{size:,} bytes from byte {first:,} on",
        expected=f"{end - first:,}",
        fix="restore the file, or run `playhead prepare` on the recipe again",
    )


def _changed(path: str, found: Stamp, expected: Stamp) -> StoreError:
    return StoreError(
        f"{path}: changed since it was indexed",
        found=f"{found.size:,} bytes, modification mark {found.mark}",
        expected=f"{expected.size:,} bytes, modification mark {expected.mark}",
        fix="run `playhead prepare` on the recipe again, or restore the file",
    )


def read_spans(paths: Sequence[str], spans: Spans) -> list[bytes]:
    """The bytes of some ranges, once, with nothing kept open."""
    return OpenFiles()(paths, spans)
