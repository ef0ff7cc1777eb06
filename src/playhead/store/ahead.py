"""A file on a network read in small pieces that follow one another: asked for in large ones."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from playhead.store.access import requests_cost
from playhead.store.files import File

_MOST_BYTES = 8 << 20  # 50 ms of latency are half of the time that so much takes at 200 MB/s
_KEPT = 3  # decompressors come back to the beginning of what they decompress


class _Window(NamedTuple):
    first: int
    data: bytes

    @property
    def end(self) -> int:
        return self.first + len(self.data)


class ReadingAhead:
    """Law: it reads the same bytes as the file. What follows what was read is asked for in pieces that double in size.

    Nothing past `end` is read ahead. A file on a disk is read as it is asked for: the system reads ahead itself.
    """

    def __init__(self, file: File, end: int | None = None, most_bytes: int = _MOST_BYTES) -> None:
        self._file, self._end, self._most_bytes = file, file.size if end is None else end, most_bytes
        self._is_costly = requests_cost(file.files, file.path)
        self._kept: deque[_Window] = deque(maxlen=_KEPT)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset`, fewer than `size` only at the end of the file."""
        end = min(offset + size, self._file.size)
        if not self._is_costly:
            return self._file.read(offset, size)
        parts = []
        while offset < end:
            window = self._window(offset, end)
            parts.append(window.data[offset - window.first : end - window.first])
            offset += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _window(self, offset: int, end: int) -> _Window:
        """What is kept of the file at an offset, or is read now."""
        size = end - offset
        for window in self._kept:
            if window.first <= offset < window.end:
                return window
            if window.end == offset:
                size = max(size, min(2 * len(window.data), self._most_bytes, self._end - offset))
        found = _Window(offset, self._file.read(offset, size))
        self._kept.append(found)
        return found
