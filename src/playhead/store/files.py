"""The interface to files, local or remote: list by pattern, stamp, read byte ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple, Protocol

import msgspec

from playhead.errors import DataError, StoreError

Buffer = bytes | memoryview

_PIECE_BYTES = 8 << 20


class Stamp(msgspec.Struct, frozen=True):
    """What distinguishes a changed file from an unchanged one."""

    size: int
    mark: int


class Ranges(NamedTuple):
    """Byte ranges as two lists of the same length: the first byte of each, and the byte after its last."""

    firsts: list[int]
    ends: list[int]


class Files(Protocol):
    """Storage. Threads may share one; it can be pickled, and the copy has nothing open.

    What is added to storage (joined ranges, counters, a cache) is a wrapper with the same three methods, whose `files`
    is what it wraps. A storage may say by an optional method what its requests cost: see access.py.
    A file that does not exist is a DataError where it is asked for without a stamp. Whatever else fails is a
    StoreError that names the path. `playhead.testing.check_files` tests an implementation.
    """

    def list(self, pattern: str) -> Sequence[str]:
        """The files that match a pattern, sorted; there may be none. A pattern without a wildcard must exist.

        `*`, `?` and `[...]` match within a part of a path, `**` any number of parts; names that begin with a dot only
        where the pattern has the dot.
        """

    def stamp(self, path: str) -> Stamp:
        """The size and modification mark of a file; the mark changes whenever the file is written to."""

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        """The bytes of each range in the order given, as views of what was read; or in the buffers `into`.

        Law: every byte is of the file that `stamp` was taken of, also while it is replaced or written to; else it is
        a StoreError, as is a range past the end. None accepts the file as it is now. Ranges may be empty, overlap and
        come in any order. Each buffer has the size of its range: another size is a ValueError, and nothing is written.
        """


@dataclass(frozen=True)
class File:
    """One file as it was when it was stamped: reading it after a change is an error."""

    files: Files
    path: str
    stamp: Stamp

    @property
    def size(self) -> int:
        return self.stamp.size

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset`, fewer than `size` only at the end of the file."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        return bytes(self.files.read(self.path, self.stamp, Ranges([offset], [end]))[0])

    def pieces(self, piece_bytes: int = _PIECE_BYTES) -> Iterator[bytes]:
        """The whole file, one request at a time, so that a large file does not time out."""
        for offset in range(0, self.size, piece_bytes):
            yield self.read(offset, piece_bytes)


class Extent(msgspec.Struct, frozen=True):
    """Some bytes of a file that are not read yet; `head` are those at their beginning that are already read."""

    file: File
    first: int
    end: int
    head: Buffer = b""

    @property
    def size(self) -> int:
        return self.end - self.first

    def read(self) -> bytes:
        """The bytes. Law: all of them, of the file that was stamped; otherwise it is a StoreError."""
        return bytes(self.part(0, self.size))

    def cut(self, first: int, end: int) -> Extent:
        """A part of the extent, counted from its beginning."""
        return Extent(self.file, self.first + first, self.first + end, self.head[first:end])

    def part(self, first: int, end: int) -> Buffer:
        """The bytes of a part."""
        if end <= len(self.head):
            return self.head[first:end]
        ranges = Ranges([self.first + first], [self.first + end])
        return self.file.files.read(self.file.path, self.file.stamp, ranges)[0]


def open_file(files: Files, path: str) -> File:
    return File(files, path, files.stamp(path))


def check_ranges(ranges: Ranges) -> None:
    """Refuse ranges that end before they begin, or begin before the file: a bug of the caller."""
    for first, end in zip(*ranges, strict=True):
        if not 0 <= first <= end:
            raise ValueError(f"invalid byte range: {first} to {end}")


def check_buffers(ranges: Ranges, into: Sequence[memoryview]) -> None:
    """Refuse buffers that do not fit the ranges: a bug of the caller."""
    sizes = list(map(sub, ranges.ends, ranges.firsts))
    if [buffer.nbytes for buffer in into] != sizes:
        raise ValueError("each range needs a buffer of its size")
    for buffer in into:
        if buffer.readonly or buffer.itemsize != 1 or buffer.ndim != 1 or not buffer.contiguous:
            raise ValueError("a buffer must be a writable, contiguous view of bytes")


def missing(path: str) -> DataError:
    return DataError(f"{path}: no such file", fix="correct the path, or restore the file")


def vanished(path: str) -> StoreError:
    """The error for a file that existed when it was stamped."""
    return StoreError(
        f"{path}: no such file",
        expected="the file that was indexed",
        fix="restore the file, or run `playhead prepare` on the recipe again",
    )


def changed(path: str, found: Stamp, expected: Stamp) -> StoreError:
    return StoreError(
        f"{path}: changed since it was indexed",
        found=f"{found.size:,} bytes, modification mark {found.mark}",
        expected=f"{expected.size:,} bytes, modification mark {expected.mark}",
        fix="run `playhead prepare` on the recipe again, or restore the file",
    )


def too_short(path: str, first: int, end: int, size: int) -> StoreError:
    return StoreError(
        f"{path}: is shorter than expected",
        found=f"{size:,} bytes from byte {first:,} on",
        expected=f"{end - first:,}",
        fix="restore the file, or run `playhead prepare` on the recipe again",
    )
