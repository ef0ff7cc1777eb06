"""Local files: read by `pread`, so without a shared position and safe after a fork; a few are kept open."""

from __future__ import annotations

import errno
import glob
import os
import resource
from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat
from operator import sub
from pathlib import Path
from threading import Lock

from playhead.errors import DataError, StoreError
from playhead.store.files import Buffer, Ranges, Stamp, changed, missing, too_short, vanished

_NO_DESCRIPTORS = "raise the limit on open files (`ulimit -n`), or open fewer loaders in one process"
FAILURES = {
    errno.EMFILE: _NO_DESCRIPTORS,
    errno.ENFILE: "close other programs, or raise the limit on open files of the whole system (`sysctl fs.file-max`)",
    errno.ENOMEM: "free memory, or raise the limit on it (`ulimit -v`) or on mappings (`sysctl vm.max_map_count`)",
    errno.EIO: "check the disk or the mount, then run it again",
    errno.ESTALE: "check the network file system, then run it again",
}
MOST_OPEN = 256  # and at most a quarter of what the process may open


class LocalFiles:
    """Files by path, the most recently used kept open. All descriptors and their lock are here."""

    def __init__(self, most_open: int | None = None) -> None:
        self._most_open = _most_open() if most_open is None else most_open
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return LocalFiles, (self._most_open,)

    def list(self, pattern: str) -> Sequence[str]:
        if not glob.has_magic(pattern) or os.path.lexists(pattern):
            if not Path(pattern).exists():
                raise missing(pattern)
            return [pattern]
        matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute patterns
        return sorted(path for path in matches if not Path(path).is_dir())

    def stamp(self, path: str) -> Stamp:
        try:
            found = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call
        except OSError as error:
            raise unreadable(path, error) from error
        return Stamp(found.st_size, found.st_mtime_ns)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        opened = self._opened(path, stamp)  # held while it is read: another thread may close it meanwhile
        try:
            found = opened.read(ranges) if into is None else opened.read_into(ranges, into)
            now = opened.stamp_now()
        except OSError as error:
            raise unreadable(path, error) from error
        if now != opened.stamp:
            self._forget(path)
            raise changed(path, now, opened.stamp)
        return found

    def _opened(self, path: str, stamp: Stamp | None) -> _Opened:
        with self._lock:
            opened = self._open.get(path)
            if opened is not None:
                self._open.move_to_end(path)
        if opened is not None and stamp is None and opened.stamp != self.stamp(path):
            opened = None  # replaced by another file since it was opened
        if opened is None:
            opened = self._newly_opened(path, stamp)
        if stamp is not None and opened.stamp != stamp:
            self._forget(path)
            raise changed(path, opened.stamp, stamp)
        return opened

    def _newly_opened(self, path: str, stamp: Stamp | None) -> _Opened:
        try:
            opened = self._with_room(path)
        except FileNotFoundError as error:
            raise (missing(path) if stamp is None else vanished(path)) from error
        except OSError as error:
            problem = unreadable(path, error)
            if stamp is not None and not isinstance(problem, StoreError):  # it could be read when it was indexed
                problem = StoreError(problem.problem, found=problem.found, fix=problem.fix)
            raise problem from error
        with self._lock:
            self._open[path] = opened
            self._open.move_to_end(path)
            while len(self._open) > self._most_open:
                self._open.popitem(last=False)
        return opened

    def _with_room(self, path: str) -> _Opened:
        """A file newly opened; where descriptors run out, once more with those closed that are not being read."""
        try:
            return _Opened(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            with self._lock:
                self._open.clear()
        return _Opened(path)

    def _forget(self, path: str) -> None:
        with self._lock:
            self._open.pop(path, None)


class _Opened:
    """An open file, closed when nothing refers to it any more."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.stamp = self.stamp_now()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def stamp_now(self) -> Stamp:
        found = os.fstat(self._descriptor)
        return Stamp(found.st_size, found.st_mtime_ns)

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
                got = os.preadv(self._descriptor, [buffer[size : end - first]], first + size)
                if got == 0:
                    raise self._ended(first, end, size)
                size += got
        return into

    def _in_pieces(self, data: bytes, first: int, end: int) -> bytes:
        """A range that may not have come in one piece, whole."""
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


def _most_open() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_OPEN if limit == resource.RLIM_INFINITY else max(1, min(MOST_OPEN, limit // 4))


def unreadable(path: str, error: OSError) -> DataError | StoreError:
    """What a failed read means: a StoreError where it says nothing about the file itself."""
    if error.errno in FAILURES:
        return StoreError(f"{path}: cannot be read", found=error.strerror, fix=FAILURES[error.errno])
    if isinstance(error, FileNotFoundError):
        return missing(path)
    return DataError(
        f"{path}: cannot be read",
        found=error.strerror or str(error),
        fix="check the permissions and the disk it is on",
    )
