"""Files wherever they are, local by path or remote by URL: one way to list, stamp, open and stream them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from playhead.errors import DataError
from playhead.store.addresses import is_url
from playhead.store.local import Stamp, match_local, open_local, stamp_local

_PIECE = 8 << 20


class File(Protocol):
    """An open file without a position: any number of readers may share it."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset`, fewer than `size` only at the end of the file."""


@contextmanager
def open_file(path: str) -> Iterator[File]:
    if is_url(path):
        from playhead.store.remote import open_remote

        yield open_remote(path)
        return
    with open_local(path) as file:
        yield file


def stamp(path: str) -> Stamp:
    if is_url(path):
        from playhead.store.remote import stamp_remote

        return stamp_remote(path)
    return stamp_local(path)


def stream(file: File, piece: int = _PIECE) -> Iterator[bytes]:
    """A whole file, piece by piece: a request each for a remote one, so that no large file runs into a time-out."""
    for offset in range(0, file.size, piece):
        yield file.read(offset, piece)


def list_files(patterns: Sequence[str]) -> list[str]:
    """The files that the patterns name, in the order of the patterns and by name within one.

    Law: no file is listed twice, and every pattern matches something: else it is an error.
    """
    seen: dict[str, str] = {}
    for pattern in patterns:
        for path in _matches(pattern):
            if path in seen:
                raise DataError(
                    f"{path}: is listed twice",
                    found=f'it matches "{seen[path]}" and again "{pattern}"',
                    expected="every file once; its rows would be seen twice as often",
                    fix="remove one of the patterns",
                )
            seen[path] = pattern
    return list(seen)


def _matches(pattern: str) -> list[str]:
    if is_url(pattern):
        from playhead.store.remote import match_remote

        found = match_remote(pattern)
    else:
        found = match_local(pattern)
    if not found:
        raise DataError(
            f"{pattern}: no file matches this pattern",
            expected="at least one file",
            fix="correct the path, or restore the files",
        )
    return found
