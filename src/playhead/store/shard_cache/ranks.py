"""The ranks that read through a shard cache: each has a file in its directory, and holds its lock while it lives.

The file has the step at which the rank stands, and the rest of what is known about it as JSON behind a checksum.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from playhead.fingerprint import digest_bytes
from playhead.store.shard_cache.counters import FillerStatus, fold_counters, reset_direct, write_status
from playhead.store.shard_cache.directory import (
    MARKER,
    REGISTER_LOCK,
    CacheDirectory,
    Marker,
    is_locked,
    lock_file,
    locked,
    remove_markers_begun,
    write_whole,
)
from playhead.store.shard_cache.queue import write_queue
from playhead.store.shard_cache.refusals import naming_the_directory

_STEP = struct.Struct("<Q")
_HEAD = struct.Struct("<QQ")


class RankRecord(msgspec.Struct, frozen=True):
    """A rank of a job: its recipe (by digest), which stream of it, who it is, and a cursor that it has reached.

    `steps_ahead` is how many steps behind the cursor its workers may be reading already.
    """

    job: str
    split: str | None
    rank: int
    world_size: int
    cursor: tuple[int, ...]
    process: int
    total_bytes: int = 0
    steps_ahead: int = 0
    num_starts: int = 0
    is_idle: bool = False


class LiveRank(msgspec.Struct, frozen=True):
    """A rank that lives, and the step at which it stands."""

    name: str
    about: RankRecord
    step: int


class RankFile:
    """The registration of a rank; it ends when it is closed, or with its process."""

    def __init__(self, directory: CacheDirectory, recipe: dict[str, Any], about: RankRecord) -> None:
        self._directory = directory
        text = msgspec.json.encode(recipe, order="sorted")
        self._about = msgspec.structs.replace(about, job=digest_bytes(text))
        job = directory.root / "jobs" / f"{self._about.job}.json"
        self._path = directory.root / "ranks" / f"{about.rank}-{os.getpid()}-{secrets.token_hex(4)}"
        with naming_the_directory(directory.root), locked(directory.root / REGISTER_LOCK):
            if not _clean(directory):
                _new_generation(directory, about.total_bytes)  # before the rank is seen: units are then unchecked
            if not job.exists():
                write_whole(job, text)
            self._descriptor: int | None = lock_file(self._path, make=True)
            try:
                self._write()
            except BaseException:
                self._leave()
                with suppress(OSError):
                    _remove_unused_jobs(directory)
                raise
        _all.add(self)

    def moved(self, cursor: tuple[int, ...], *, restarted: bool = False) -> None:
        """The rank stands at a cursor: its numbers, the step first. One that restarted may stand before the last."""
        num_starts = self._about.num_starts + restarted
        self._about = msgspec.structs.replace(self._about, cursor=cursor, num_starts=num_starts, is_idle=False)
        with suppress(OSError):
            self._write()

    def rest(self) -> None:
        """The rank needs nothing for now: its round has ended."""
        self._about = msgspec.structs.replace(self._about, is_idle=True)
        with suppress(OSError):
            self._write()

    def _write(self) -> None:
        """All in one call: a new cursor is never seen beside an old step."""
        body = msgspec.json.encode(self._about)
        head = _STEP.pack(self._about.cursor[0]) + _HEAD.pack(len(body), zlib.crc32(body))
        if self._descriptor is not None:
            os.pwrite(self._descriptor, head + body, 0)

    def at_step(self, step: int) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, _STEP.pack(step), 0)

    def close(self) -> None:
        """End the registration. The last rank of a job takes its recipe away, which may have secrets in it."""
        if self._descriptor is not None:
            with suppress(OSError), locked(self._directory.root / REGISTER_LOCK):
                self._leave()
                _remove_unused_jobs(self._directory)
            self._leave()  # also where the cache was removed

    def _leave(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(descriptor)

    @property
    def is_there(self) -> bool:
        """Whether the registration is still in the directory, from which it may have been removed."""
        return self._path.exists()

    def leave_to_parent(self) -> None:
        """In a fork: the rank lives and dies with the parent alone."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_all: WeakSet[RankFile] = WeakSet()


def _after_fork() -> None:
    for file in _all:
        file.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _clean(directory: CacheDirectory) -> list[Path]:
    """Remove what ranks and processes that ended have left; returns the files of those that live."""
    fold_counters(directory)
    remove_markers_begun(directory)
    living = []
    for path in directory.files("ranks"):
        if is_locked(path):
            living.append(path)
        else:
            path.unlink(missing_ok=True)
    _remove_unused_jobs(directory)
    return living


def _remove_unused_jobs(directory: CacheDirectory) -> None:
    """Remove the recipes of which no rank lives. Call it with `register.lock`: none can come meanwhile."""
    living = [path for path in directory.files("ranks") if is_locked(path)]
    known = live_ranks(directory)
    if len(known) == len(living):  # else one is just being written: whose job that is cannot be known
        jobs = {f"{rank.about.job}.json" for rank in known}
        for path in directory.files("jobs"):
            if path.name not in jobs:
                path.unlink(missing_ok=True)


def _new_generation(directory: CacheDirectory, total_bytes: int) -> None:
    marker = directory.marker() or Marker()
    found = msgspec.structs.replace(marker, generation=marker.generation + 1)
    write_whole(directory.root / MARKER, msgspec.json.encode(found), durably=True)
    (directory.units / str(found.generation)).mkdir(exist_ok=True)
    reset_direct(directory)
    write_queue(directory, [])
    write_status(directory, FillerStatus(found.generation, 0, total_bytes, 0))


def any_lives(directory: CacheDirectory) -> bool:
    """Whether a rank uses the cache."""
    try:
        return any(is_locked(path) for path in directory.files("ranks"))
    except OSError:
        return False


def live_ranks(directory: CacheDirectory) -> list[LiveRank]:
    found = []
    for path in directory.files("ranks"):
        with suppress(OSError, msgspec.DecodeError, struct.error):
            data = path.read_bytes()
            size, checksum = _HEAD.unpack_from(data, _STEP.size)
            body = data[_STEP.size + _HEAD.size :][:size]
            if zlib.crc32(body) == checksum and is_locked(path):
                about = msgspec.json.decode(body, type=RankRecord)
                found.append(LiveRank(f"{path.name}-{about.num_starts}", about, _STEP.unpack_from(data)[0]))
    return found


def job_recipe(directory: CacheDirectory, job: str) -> Any:
    return msgspec.json.decode((directory.root / "jobs" / f"{job}.json").read_bytes())
