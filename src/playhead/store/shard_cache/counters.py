"""The counters of a shard cache: one small file for each process that uses it, summed up when they are asked for.

A process holds the lock of its file. Those of processes that ended are added to one total, so files do not pile up.
"""

from __future__ import annotations

import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from playhead.store.shard_cache.directory import (
    DIRECT,
    REGISTER_LOCK,
    STATUS,
    CacheDirectory,
    is_locked,
    locked,
    locked_to_read,
    try_lock,
    write_in_place,
)

_TOTAL = "total"
_NUMBER = struct.Struct("<Q")


class CacheCounts(NamedTuple):
    """What was read through a cache, and what its filler did.

    `hits` and `misses` count ranges, `direct_bytes` what was read past the cache, `blocked_ns` the time that readers
    waited for what was not in it. `kept_units` are those of earlier runs whose digest was right.
    """

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    direct_bytes: int = 0
    blocked_ns: int = 0
    copied_units: int = 0
    copied_bytes: int = 0
    kept_units: int = 0
    kept_bytes: int = 0
    evictions: int = 0
    evicted_bytes: int = 0
    damaged_units: int = 0
    failures: int = 0

    def plus(self, other: CacheCounts) -> CacheCounts:
        return CacheCounts(*[a + b for a, b in zip(self, other, strict=True)])


_LAYOUT = struct.Struct(f"<{len(CacheCounts._fields)}Q")


class ProcessCounters:
    """The counters of this process, in its own file. A directory that cannot be written only loses them."""

    def __init__(self, directory: CacheDirectory) -> None:
        self.counts = CacheCounts()
        self._lock = Lock()
        self._descriptor: int | None = None
        with suppress(OSError):
            path = directory.root / "counters" / f"{os.getpid()}-{secrets.token_hex(4)}"
            with locked(directory.root / REGISTER_LOCK):  # else it could be taken for one whose process ended
                self._descriptor = try_lock(path, make=True)
            self._write()

    def add(self, **more: int) -> None:
        with self._lock:
            self.counts = self.counts._replace(**{name: getattr(self.counts, name) + n for name, n in more.items()})
            self._write()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def _write(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, _LAYOUT.pack(*self.counts), 0)


def fold_counters(directory: CacheDirectory) -> None:
    """Add the counters of processes that ended to the total, and remove their files. Call it with `register.lock`."""
    total = directory.root / "counters" / _TOTAL
    ended = [path for path in directory.files("counters") if path != total and not is_locked(path)]
    if not ended:
        return
    counts = _read(total)
    for path in ended:
        counts = counts.plus(_read(path))
    with suppress(OSError):
        total.touch(0o600)
        write_in_place(total, _LAYOUT.pack(*counts))
        for path in ended:
            path.unlink(missing_ok=True)


def sum_counters(directory: CacheDirectory) -> CacheCounts:
    """The counters of all processes, living or not. Raises OSError."""
    counts = CacheCounts()
    with locked_to_read(directory.root / REGISTER_LOCK):
        for path in directory.files("counters"):
            counts = counts.plus(_read(path))
    return counts


def _read(path: Path) -> CacheCounts:
    try:
        data = path.read_bytes()
    except OSError:
        return CacheCounts()
    return CacheCounts(*_LAYOUT.unpack(data)) if len(data) == _LAYOUT.size else CacheCounts()


class FillerStatus(NamedTuple):
    """What the filler publishes: the generation, the bytes it has copied, and those of all files it may copy from."""

    generation: int = 0
    copied_bytes: int = 0
    total_bytes: int = 0
    num_events: int = 0


_STATUS = struct.Struct(f"<{len(FillerStatus._fields)}Q")


def write_status(directory: CacheDirectory, status: FillerStatus) -> None:
    with suppress(OSError):
        write_in_place(directory.root / STATUS, _STATUS.pack(*status))


def read_status(directory: CacheDirectory) -> FillerStatus:
    try:
        data = (directory.root / STATUS).read_bytes()
    except OSError:
        return FillerStatus()
    return FillerStatus(*_STATUS.unpack(data)) if len(data) == _STATUS.size else FillerStatus()


def spend_direct(directory: CacheDirectory, num_bytes: int, most: int | None) -> bool:
    """Count bytes that are read past the cache by all processes together, unless they would then be more than `most`.

    Returns whether they were counted.
    """
    try:
        with locked(directory.root / DIRECT) as descriptor:
            spent = num_direct(directory)
            if most is not None and spent + num_bytes > most:
                return False
            os.pwrite(descriptor, _NUMBER.pack(spent + num_bytes), 0)  # in place: a kill loses no count
    except OSError:
        return True
    return True


def num_direct(directory: CacheDirectory) -> int:
    """The bytes that were read past the cache, by all processes together."""
    try:
        data = (directory.root / DIRECT).read_bytes()
    except OSError:
        return 0
    return int(_NUMBER.unpack(data)[0]) if len(data) == _NUMBER.size else 0


def reset_direct(directory: CacheDirectory) -> None:
    with suppress(OSError), locked(directory.root / DIRECT) as descriptor:
        os.pwrite(descriptor, _NUMBER.pack(0), 0)
