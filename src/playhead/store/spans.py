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

    `expected` says what a file was when it was indexed; one that has changed since is refused, not misread.
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
        start = 0
        while start < len(order):
            stop, end = start + 1, spans[order[start]][1]
            path, first = paths[order[start]], spans[order[start]][0]
            while stop < len(order) and paths[order[stop]] == path:
                next_first, next_end = spans[order[stop]]
                if next_first > end + NEAR_BYTES or next_end - first > MOST_JOINED_BYTES:
                    break
                stop, end = stop + 1, max(end, next_end)
            data = self._whole(path, first, end)
            if stop == start + 1:
                found[order[start]] = data
            else:
                for i in order[start:stop]:
                    found[i] = data[spans[i][0] - first : spans[i][1] - first]
            start = stop
        return found

    def _whole(self, path: str, first: int, end: int) -> bytes:
        data = self._file(path).file.read(first, end - first)
        if len(data) != end - first:
            raise DataError(
                f"{path}: ends before the row does",
                found=f"{len(data):,} bytes from byte {first:,} on",
                expected=f"{end - first:,}",
                fix="restore the file, or run `playhead prepare` on the recipe again",
            )
        return data

    def _file(self, path: str) -> _Owned:
        with self._lock:
            owned = self._files.get(path)
            if owned is not None:
                self._files.move_to_end(path)
                return owned
        owned = _Owned(path)
        expected = self._expected(path) if self._expected is not None else None
        if expected is not None and owned.stamp != expected:
            raise DataError(
                f"{path}: changed since it was indexed",
                found=f"{owned.stamp.size:,} bytes, modification mark {owned.stamp.mark}",
                expected=f"{expected.size:,} bytes, modification mark {expected.mark}",
                fix="run `playhead prepare` on the recipe again, or restore the file",
            )
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
        about = os.fstat(self._descriptor)
        self.stamp = Stamp(about.st_size, about.st_mtime_ns)
        self.file = LocalFile(path, about.st_size, self._descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def read_spans(paths: Sequence[str], spans: Sequence[Span]) -> list[bytes]:
    """The bytes of some ranges, once, with nothing kept open."""
    return OpenFiles()(paths, spans)
