"""One queue to each store or file server for all processes of a node: a wrapper around remote storage.

Many workers of many ranks that fetch at once share the bandwidth of the node, so the batch that is needed first would
arrive as late as the last. With a bound on the bytes under way, and first come, first served, batches arrive about in
the order of their steps.

The bound is kept by locks on byte ranges of an empty file, one file for each store: a request locks as many bytes of
it, anywhere below the bound, as it asks for. The system releases the locks of a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from playhead.errors import RecipeError
from playhead.fingerprint import digest
from playhead.store.addresses import is_url
from playhead.store.files import Buffer, Files, Ranges, Stamp
from playhead.store.mounts import network_mount
from playhead.store.pieces import MOST_AT_ONCE

VARIABLE = "PLAYHEAD_IN_FLIGHT_MB"
IN_FLIGHT_MB = 32  # more than 200 MB/s x 50 ms, or 1 GB/s x 30 ms: enough to hide the latency
_LEAST_BYTES = 64 << 10  # that a request counts for: at most 512 are under way
_SLEEP_SECONDS = (0.0005, 0.005)
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process
_SUPPORTED = hasattr(fcntl, "F_OFD_SETLK")  # Linux


class QueuedFiles:
    """Law: it reads the same bytes as the wrapped storage, and never more at once than the bound of the node."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def __reduce__(self) -> tuple[object, ...]:
        return QueuedFiles, (self.files,)

    def list(self, pattern: str) -> Sequence[str]:
        with _turn(pattern, 0):
            return self.files.list(pattern)

    def stamp(self, path: str) -> Stamp:
        with _turn(path, 0):
            return self.files.stamp(path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        at_once = min(len(ranges.firsts), MOST_AT_ONCE)
        with _turn(path, max(sum(ranges.ends) - sum(ranges.firsts), at_once * _LEAST_BYTES)):
            return self.files.read(path, stamp, ranges, into)


class _Thread(threading.local):
    """Whether the current thread has its turn: a request inside a request does not wait for another."""

    has_turn = False


_THREAD = _Thread()


@contextmanager
def _turn(path: str, num_bytes: int) -> Iterator[None]:
    """Wait for the turn of a request for so many bytes. Where locks are not possible there is no bound."""
    bound = in_flight_bytes()
    descriptor = None if _THREAD.has_turn or not bound else _opened(_store_of(path))
    if descriptor is None:
        yield
        return
    try:
        with suppress(OSError):  # a file system without locks
            # The first in the queue holds byte 0 while it waits for room. More than half of the bound would leave
            # nothing to hide the latency of the next request.
            _lock(descriptor, 0, 1, wait=True)
            _take_room(descriptor, min(max(num_bytes, _LEAST_BYTES), max(bound // 2, 1)), bound)
            _unlock(descriptor, 0, 1)
        _THREAD.has_turn = True
        yield
    finally:
        _THREAD.has_turn = False
        with suppress(OSError):
            _unlock(descriptor, 0, 0)  # of all bytes, also for forks that share the descriptor
        os.close(descriptor)


def _store_of(path: str) -> str:
    """The bucket, container or server of a URL, or where the file server of a path is mounted."""
    return "/".join(path.split("/", 3)[:3]) if is_url(path) else network_mount(path) or "/"


def in_flight_bytes() -> int:
    """How many bytes the processes of a node may have requested at once of a store; 0 is no bound."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return IN_FLIGHT_MB << 20
    if not given.isdecimal():
        raise RecipeError(
            f"{VARIABLE}: invalid value in the environment",
            found=repr(given),
            expected="a whole number of megabytes; 0 for no bound",
        )
    return int(given) << 20


def _take_room(descriptor: int, num_bytes: int, bound: int) -> None:
    """Lock a free stretch of the bytes from 1 to the bound."""
    sleep, longest = _SLEEP_SECONDS
    while True:
        first = 1
        while first + num_bytes <= bound + 1:
            if _lock(descriptor, first, num_bytes):
                return
            first = _end_of_conflict(descriptor, first, num_bytes)
        time.sleep(sleep)
        sleep = min(2 * sleep, longest)


def _lock(descriptor: int, first: int, num_bytes: int, *, wait: bool = False) -> bool:
    """Lock bytes of the file; False if another holds some of them, unless it is to wait."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, num_bytes, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(descriptor: int, first: int, num_bytes: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, first, num_bytes, 0))


def _end_of_conflict(descriptor: int, first: int, num_bytes: int) -> int:
    """Where the stretch ends that another holds of these bytes; their first byte, if none is held any more."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, num_bytes, 0)
    kind, _, begin, length, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted))
    return first if kind == fcntl.F_UNLCK else int(begin) + int(length)


def _opened(store: str) -> int | None:
    """The file of a store's queue, opened by this call alone: locks belong to what is opened, not to a process."""
    for _ in range(2 if _SUPPORTED else 0):
        with suppress(OSError):  # also where there is no temporary directory
            folder = _folder(os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir())
            if folder is None:
                return None
            return os.open(folder / f"{digest(store)[:16]}.queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _folder.cache_clear()  # perhaps it was removed, as temporary files are now and then
    return None


@lru_cache(maxsize=8)
def _folder(runtime: str | None, temporary: str) -> Path | None:
    """A directory of this user and node; None if there is none that others cannot write to."""
    for folder in ([Path(runtime, "playhead")] if runtime else []) + [Path(temporary, f"playhead-{os.getuid()}")]:
        with suppress(OSError):
            folder.mkdir(0o700, exist_ok=True)
            about = folder.lstat()
            if folder.is_dir() and not folder.is_symlink() and about.st_uid == os.getuid() and not about.st_mode & 0o77:
                return folder
    return None
