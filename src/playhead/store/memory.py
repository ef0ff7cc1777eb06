"""Files in the memory of this process, under `memory://` paths: for tests and for data that a program makes itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from playhead.store.files import (
    Buffer,
    Ranges,
    Stamp,
    changed,
    check_buffers,
    check_ranges,
    missing,
    too_short,
    vanished,
)
from playhead.store.globbing import has_magic, matches

SCHEME = "memory://"
_MARKS = count(1)


class MemoryFiles:
    """Whole files by path. A copy of it in another process starts empty."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, Stamp]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return MemoryFiles, ()

    def write(self, path: str, data: bytes) -> str:
        """Put a file in place of whatever was at the path; returns the path."""
        assert path.startswith(SCHEME), path
        self._files[path] = bytes(data), Stamp(len(data), next(_MARKS))
        return path

    def remove(self, path: str) -> None:
        del self._files[path]

    def list(self, pattern: str) -> Sequence[str]:
        if pattern in self._files:
            return [pattern]
        if not has_magic(pattern):
            raise missing(pattern)
        key = pattern.removeprefix(SCHEME)
        return sorted(path for path in list(self._files) if matches(path.removeprefix(SCHEME), key))

    def stamp(self, path: str) -> Stamp:
        found = self._files.get(path)
        if found is None:
            raise missing(path)
        return found[1]

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        file = self._files.get(path)
        if file is None:
            raise missing(path) if stamp is None else vanished(path)
        data, now = file
        if stamp is not None and now != stamp:
            raise changed(path, now, stamp)
        view = memoryview(data)
        found = [view[first:end] for first, end in zip(*ranges, strict=True)]
        for first, end, piece in zip(*ranges, found, strict=True):
            if len(piece) != end - first:
                raise too_short(path, first, end, len(piece))
        if into is None:
            return found
        for buffer, piece in zip(into, found, strict=True):
            buffer[:] = piece
        return into


MEMORY = MemoryFiles()
