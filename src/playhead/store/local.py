"""Local files: listed by pattern, stamped by size and modification mark, read by byte range."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from playhead.errors import DataError, StoreError

_NO_DESCRIPTORS = "raise the limit on open files (`ulimit -n`), or open fewer loaders in one process"
FAILURES = {
    errno.EMFILE: _NO_DESCRIPTORS,
    errno.ENFILE: "close other programs, or raise the limit on open files of the whole system (`sysctl fs.file-max`)",
    errno.ENOMEM: "free memory, or raise the limit on it (`ulimit -v`) or on mappings (`sysctl vm.max_map_count`)",
    errno.EIO: "check the disk or the mount, then run it again",
    errno.ESTALE: "check the network file system, then run it again",
}


class Stamp(msgspec.Struct, frozen=True):
    """What tells a changed file from an unchanged one."""

    size: int
    mark: int


@dataclass(frozen=True)
class LocalFile:
    """An open file without a position: any number of readers may share it, also after a fork."""

    path: str
    size: int
    descriptor: int

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from `offset`, fewer than `size` only at the end of the file."""
        try:
            piece = os.pread(self.descriptor, size, offset)
            if len(piece) == size or not piece:
                return piece
            pieces = [piece]
            got = len(piece)
            while got < size and (piece := os.pread(self.descriptor, size - got, offset + got)):
                pieces.append(piece)
                got += len(piece)
        except OSError as error:
            raise unreadable(self.path, error) from error
        return b"".join(pieces)


@contextmanager
def open_local(path: str) -> Iterator[LocalFile]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        yield LocalFile(path, os.fstat(descriptor).st_size, descriptor)
    finally:
        os.close(descriptor)


def stamp_local(path: str) -> Stamp:
    try:
        found = Path(path).stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return Stamp(found.st_size, found.st_mtime_ns)


def match_local(pattern: str) -> list[str]:
    """The files that a pattern names, by name; one without a wildcard names itself, and must be there."""
    if not glob.has_magic(pattern) or os.path.lexists(pattern):
        if not Path(pattern).exists():
            raise DataError(f"{pattern}: no such file", fix="correct the path, or restore the file")
        return [pattern]
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute patterns
    return sorted(path for path in matches if not Path(path).is_dir())


def unreadable(path: str, error: OSError) -> DataError | StoreError:
    """What a failed read means: a StoreError where it says nothing about the file itself."""
    if error.errno in FAILURES:
        return StoreError(f"{path}: cannot be read", found=error.strerror, fix=FAILURES[error.errno])
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file", fix="correct the path, or restore the file")
    return DataError(
        f"{path}: cannot be read",
        found=error.strerror or str(error),
        fix="check the permissions and the disk it is on",
    )
