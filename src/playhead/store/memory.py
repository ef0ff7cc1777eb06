"""Files in the memory of this process, under `memory://` paths: for tests and for data made by the program itself."""

from __future__ import annotations

from collections.abc import Sequence

from playhead.errors import DataError, StoreError
from playhead.fingerprint import digest_bytes
from playhead.store.access import Access
from playhead.store.files import (
    Buffer,
    Ranges,
    Stamp,
    changed,
    check_buffers,
    check_ranges,
    too_short,
)
from playhead.store.globbing import has_magic, matches

SCHEME = "memory://"
_MARK_DIGITS = 15  # 60 bits: a mark is a signed 64-bit number


_FIX = "write the file first; no other process sees it, so use threads or no workers, and no engine"


class MemoryFiles:
    """Whole files by path. A copy of it in another process starts empty."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, Stamp]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return MemoryFiles, ()

    def write(self, path: str, data: bytes) -> str:
        """Write a file, replacing any file at the path; returns the path."""
        assert path.startswith(SCHEME), path
        # The mark is made from the contents, so that an index on disk never matches other data.
        self._files[path] = bytes(data), Stamp(len(data), int(digest_bytes(data)[:_MARK_DIGITS], 16))
        return path

    def remove(self, path: str) -> None:
        del self._files[path]

    def access(self, path: str) -> Access:  # noqa: ARG002 - the same for all
        return Access(requests_cost=False, in_process=True)

    def list(self, pattern: str) -> Sequence[str]:
        if pattern in self._files:
            return [pattern]
        if not has_magic(pattern):
            raise _not_here(pattern)
        key = pattern.removeprefix(SCHEME)
        return sorted(path for path in list(self._files) if matches(path.removeprefix(SCHEME), key))

    def stamp(self, path: str) -> Stamp:
        found = self._files.get(path)
        if found is None:
            raise _not_here(path)
        return found[1]

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        check_ranges(ranges)
        if into is not None:
            check_buffers(ranges, into)
        file = self._files.get(path)
        if file is None:
            raise _not_here(path) if stamp is None else StoreError(_not_here(path).problem, fix=_FIX)
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


def _not_here(path: str) -> DataError:
    return DataError(f"{path}: no such file in the memory of this process", fix=_FIX)
