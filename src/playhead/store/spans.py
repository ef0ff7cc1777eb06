"""Many byte ranges of many files at once: grouped by file, read in order of place, joined when near."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

from playhead.errors import DataError
from playhead.store.local import LocalFile, Stamp, unreadable

Span = tuple[int, int]

NEAR_BYTES = 1 << 14  # reading this much for nothing costs less than another request
MOST_JOINED_BYTES = 1 << 22
MOST_OPEN = 256


class OpenFiles:
    """Files kept open between reads, the least recently used closed first. Threads may share one.

    `expected` says what a file was when it was indexed; one that has changed since, even while it is open, is refused,
    not misread.
    """

    def __init__(self, expected: Callable[[str], Stamp | None] | None = None, most_open: int = MOST_OPEN) -> None:
        self._expected = expected
        self._most_open = most_open
        self._files: OrderedDict[str, _Owned] = OrderedDict()
        self._lock = Lock()

    def __call__(self, paths: Sequence[str], spans: Sequence[Span]) -> list[bytes]:
        """The bytes of each (first byte, end) of each path, in the order given."""
        found: list[bytes] = [b""] * len(paths)
        order = sorted(range(len(paths)), key=lambda i: (paths[i], spans[i]))
        owned: _Owned | None = None  # held while it is read: another thread may let go of it meanwhile
        start = 0
        while start < len(order):
            stop, end = start + 1, spans[order[start]][1]
            path, first = paths[order[start]], spans[order[start]][0]
            while stop < len(order) and paths[order[stop]] == path:
                next_first, next_end = spans[order[stop]]
                if next_first > end + NEAR_BYTES or next_end - first > MOST_JOINED_BYTES:
                    break
                stop, end = stop + 1, max(end, next_end)
            if owned is None or owned.file.path != path:
                self._check(owned)
                owned = self._file(path)
            data = self._whole(owned, first, end)
            if stop == start + 1:
                found[order[start]] = data
            else:
                for i in order[start:stop]:
                    found[i] = data[spans[i][0] - first : spans[i][1] - first]
            start = stop
        self._check(owned)
        return found

    def _whole(self, owned: _Owned, first: int, end: int) -> bytes:
        data = owned.file.read(first, end - first)
        if len(data) != end - first:
            self._check(owned)
            raise DataError(
                f"{owned.file.path}: ends before the row does",
                found=f"{len(data):,} bytes from byte {first:,} on",
                expected=f"{end - first:,}",
                fix="restore the file, or run `playhead prepare` on the recipe again",
            )
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
        owned = _Owned(path)
        expected = self._expected(path) if self._expected is not None else None
        if expected is not None and owned.stamp != expected:
            raise _changed(path, owned.stamp, expected)
        with self._lock:
            self._files[path] = owned
            while len(self._files) > self._most_open:
                self._files.popitem(last=False)
        return owned


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


def _changed(path: str, found: Stamp, expected: Stamp) -> DataError:
    return DataError(
        f"{path}: changed since it was indexed",
        found=f"{found.size:,} bytes, modification mark {found.mark}",
        expected=f"{expected.size:,} bytes, modification mark {expected.mark}",
        fix="run `playhead prepare` on the recipe again, or restore the file",
    )


def read_spans(paths: Sequence[str], spans: Sequence[Span]) -> list[bytes]:
    """The bytes of some ranges, once, with nothing kept open."""
    return OpenFiles()(paths, spans)
