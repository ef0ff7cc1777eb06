"""Local files: read by `pread`, so without a shared position and safe after a fork; a few are kept open."""

from __future__ import annotations

import errno
import glob
import os
import resource
import stat
from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat
from operator import sub
from threading import Lock
from weakref import WeakSet

from playhead.errors import DataError, StoreError
from playhead.store.access import ON_DISK, ON_NETWORK, Access
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
from playhead.store.mounts import network_mount

_NO_DESCRIPTORS = "raise the limit on open files (`ulimit -n`), or open fewer loaders in one process"
FAILURES = {
    errno.EMFILE: _NO_DESCRIPTORS,
    errno.ENFILE: "close other programs, or raise the limit on open files of the whole system (`sysctl fs.file-max`)",
    errno.ENOMEM: "free memory, or raise the limit on it (`ulimit -v`) or on mappings (`sysctl vm.max_map_count`)",
    errno.EIO: "check the disk or the mount, then run it again",
    errno.ESTALE: "check the network file system, then run it again",
}
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not wait for its writer
MOST_OPEN = 256  # and at most a quarter of what the process may open
_FEWEST_OPEN = 16  # even if descriptors run out again


class LocalFiles:
    """Files by path, the most recently used kept open. All descriptors and their lock are here."""

    def __init__(self, most_open: int | None = None) -> None:
        self._most_open = most_open_here() if most_open is None else most_open
        self.close()
        _all.add(self)

    def __reduce__(self) -> tuple[object, ...]:
        return LocalFiles, (self._most_open,)

    def close(self) -> None:
        """Close everything. In a fork another thread may have held the lock: it is replaced."""
        self._open: OrderedDict[str, OpenedFile] = OrderedDict()
        self._lock = Lock()

    def access(self, path: str) -> Access:
        return ON_DISK if network_mount(path) is None else ON_NETWORK

    def list(self, pattern: str) -> Sequence[str]:
        if not glob.has_magic(pattern) or os.path.lexists(pattern):
            _stat(pattern)
            return [pattern]
        matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute patterns
        return sorted(path for path in matches if not os.path.isdir(path))  # noqa: PTH112 - a Path may raise

    def stamp(self, path: str) -> Stamp:
        return _stamp(path, _stat(path))

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        if into is not None:
            check_buffers(ranges, into)
        opened = self._opened(path, stamp)  # referenced while it is read: another thread may drop it meanwhile
        try:
            found = opened.read(ranges) if into is None else opened.read_into(ranges, into)
            now = opened.stamp_now()
        except (OSError, MemoryError, OverflowError) as error:
            self._forget(path)
            check_ranges(ranges)
            raise opened.failure(ranges, error) from error
        if now != opened.stamp:
            self._forget(path)
            raise changed(path, now, opened.stamp)
        return found

    def _opened(self, path: str, stamp: Stamp | None) -> OpenedFile:
        """The file that was stamped, kept open; without a stamp the file that is there now, for one read."""
        if stamp is None:
            return self._newly_opened(path)
        with self._lock:
            opened = self._open.get(path)
            if opened is not None:
                self._open.move_to_end(path)
        if opened is not None and opened.stamp == stamp:
            return opened
        try:
            opened = self._newly_opened(path)
        except DataError as error:
            raise vanished(path) from error
        if opened.stamp != stamp:
            raise changed(path, opened.stamp, stamp)
        with self._lock:
            self._open[path] = opened
            self._open.move_to_end(path)
            while len(self._open) > self._most_open:
                self._open.popitem(last=False)
        return opened

    def _newly_opened(self, path: str) -> OpenedFile:
        """Retry once when descriptors run out, with unused files closed; fewer are kept open from then on."""
        try:
            try:
                return OpenedFile(path)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
            with self._lock:
                self._most_open = min(self._most_open, max(_FEWEST_OPEN, len(self._open) // 2))
                self._open.clear()
            return OpenedFile(path)
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error

    def _forget(self, path: str) -> None:
        with self._lock:
            self._open.pop(path, None)


class OpenedFile:
    """An open file, closed when nothing refers to it any more."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, _OPEN)
        self.stamp = _stamp(path, os.fstat(self._descriptor))

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def stamp_now(self) -> Stamp:
        found = os.fstat(self._descriptor)
        return Stamp(found.st_size, found.st_mtime_ns)

    def is_unlinked(self) -> bool:
        """Whether it has no name any more: its space is free once it is closed."""
        return os.fstat(self._descriptor).st_nlink == 0

    def read(self, ranges: Ranges) -> list[bytes]:
        sizes = list(map(sub, ranges.ends, ranges.firsts))
        found = list(map(os.pread, repeat(self._descriptor), sizes, ranges.firsts))
        if list(map(len, found)) != sizes:
            found = [self._in_pieces(data, first, end) for data, first, end in zip(found, *ranges, strict=True)]
        return found

    def read_into(self, ranges: Ranges, into: Sequence[memoryview]) -> Sequence[memoryview]:
        for first, end, buffer in zip(*ranges, into, strict=True):
            size = 0
            while size < end - first:
                got = os.preadv(self._descriptor, [buffer[size:]], first + size)
                if got == 0:
                    raise self._ended(first, end, size)
                size += got
        return into

    def _in_pieces(self, data: bytes, first: int, end: int) -> bytes:
        """The whole range, which may take several reads."""
        pieces, size = [data], len(data)
        while size < end - first:
            piece = os.pread(self._descriptor, end - first - size, first + size)
            if not piece:
                raise self._ended(first, end, size)
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _ended(self, first: int, end: int, size: int) -> StoreError:
        now = self.stamp_now()
        if now != self.stamp:
            return changed(self.path, now, self.stamp)
        return too_short(self.path, first, end, size)

    def failure(self, ranges: Ranges, error: Exception) -> DataError | StoreError:
        """The error for a failed read: a range may be too long for memory because it is past the end of the file."""
        if isinstance(error, OSError):
            return unreadable(self.path, error)
        for first, end in zip(*ranges, strict=True):
            if end > self.stamp.size:
                return too_short(self.path, first, end, max(0, self.stamp.size - first))
        return unreadable(self.path, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))


_all: WeakSet[LocalFiles] = WeakSet()


def _after_fork() -> None:
    for files in _all:
        files.close()


os.register_at_fork(after_in_child=_after_fork)


def most_open_here() -> int:
    """How many files may be kept open: a quarter of what the process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_OPEN if limit == resource.RLIM_INFINITY else max(1, min(MOST_OPEN, limit // 4))


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)  # noqa: PTH116 - a Path costs as much as the call
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _stamp(path: str, found: os.stat_result) -> Stamp:
    if not stat.S_ISREG(found.st_mode):
        raise DataError(
            f"{path}: cannot be read",
            found="a directory" if stat.S_ISDIR(found.st_mode) else "a device, a pipe or a socket",
            expected="a file",
            fix="correct the path",
        )
    return Stamp(found.st_size, found.st_mtime_ns)


def unreadable(path: str, error: OSError | ValueError) -> DataError | StoreError:
    """The error for a failed call: a DataError only if the file does not exist."""
    if isinstance(error, ValueError) or error.errno in _NOT_THERE:  # ValueError: no file can have such a name
        return missing(path)
    return StoreError(
        f"{path}: cannot be read",
        found=error.strerror or str(error),
        fix=FAILURES.get(error.errno or 0, "check the permissions and the disk it is on"),
    )
