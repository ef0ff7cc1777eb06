"""Units copied into a shard cache, piece by piece and in order, and checked or evicted.

Several requests are in flight; pieces are appended to a part in their order, so the bytes of a part are always those at
the beginning of its unit, and readers use them. A part becomes a unit by a rename, with the digest behind its bytes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from playhead.errors import PlayheadError
from playhead.store import Buffer, Files, Ranges
from playhead.store.files import Stamp
from playhead.store.shard_cache.counters import ProcessCounters
from playhead.store.shard_cache.directory import (
    ORIGIN,
    PART,
    CacheDirectory,
    Origin,
    Unit,
    is_intact,
    new_digest,
    trailer,
    write_whole,
)

_PIECE_BYTES = 1 << 23
_MOST_BYTES = 1 << 26  # in flight: 50 ms of 1 GB/s
_FEWER_BYTES = 1 << 24  # while batches are waited for that are read past the cache
_MOST_REQUESTS = 16
_MOST_WAITING = 256
_SMALL_BYTES = 1 << 20  # units up to this size are requested together with others of their file
_WAIT_SECONDS = 0.02


class DiskError(Exception):
    """Some units cannot be written, for an OSError; `num_bytes` is what the cache holds without them."""

    def __init__(self, units: list[Unit], num_bytes: int) -> None:
        super().__init__(units, num_bytes)
        self.units, self.num_bytes = units, num_bytes


@dataclass
class _Copy:
    """A unit on its way: `old` is a copy of an earlier generation that is checked first."""

    unit: Unit
    files: Files
    path: Path
    old: Path | None = None
    pieces: Iterator[tuple[int, int]] = field(init=False)
    file: BinaryIO | None = None
    hash: Any = field(default_factory=new_digest)
    num_written: int = 0

    def __post_init__(self) -> None:
        self.pieces = _pieces(self.unit)


@dataclass
class _InFlight:
    """A request: what it is for, and its result. A check has no bytes, one of small units one range for each."""

    copies: list[_Copy]
    future: Future[Any]
    num_bytes: int


def _pieces(unit: Unit) -> Iterator[tuple[int, int]]:
    for first in range(unit.first, unit.end, _PIECE_BYTES):
        yield first, min(first + _PIECE_BYTES, unit.end)


class Copier:
    """Copies units into the current generation of a cache."""

    def __init__(self, directory: CacheDirectory, generation: int, counters: ProcessCounters) -> None:
        self._directory, self._generation, self._counters = directory, generation, counters
        self.max_bytes = 0
        self.problem: Exception | None = None  # the first that kept a unit from being copied
        self._present: dict[Unit, Path] = {}
        self._unchecked: dict[Unit, Path] = {}
        self._copies: dict[Unit, _Copy] = {}
        self._waiting: deque[_Copy] = deque()  # copies with pieces that are not requested yet
        self._in_flight: deque[_InFlight] = deque()
        self._bytes_in_flight = 0
        self.gives_way = False  # leaves most of the bandwidth to reads past the cache
        self.num_bytes = 0  # what the cache holds, with what is on its way
        self._pool = ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="playhead-cache")
        self._take_stock()

    def _take_stock(self) -> None:
        """What is in the directory; parts are of a filler that ended, and are removed."""
        for stored in self._directory.stored():
            origin = self._directory.origin(stored.generation, stored.key)
            if stored.span is None or origin is None:
                with suppress(OSError):
                    stored.path.unlink()
                continue
            unit = Unit(origin.path, Stamp(origin.size, origin.mark), *stored.span)
            found = self._present if stored.generation == self._generation else self._unchecked
            found[unit] = stored.path
            self.num_bytes += unit.size
        self._directory.remove_empty()

    def present(self) -> tuple[list[Unit], list[Unit]]:
        """The units that can be read, with those on their way; and those that must be checked before."""
        return [*self._present, *self._copies], [unit for unit in self._unchecked if unit not in self._copies]

    def units(self) -> list[Unit]:
        """The units on their way."""
        return [*self._copies]

    @property
    def is_busy(self) -> bool:
        """Whether enough is waiting to be requested."""
        return len(self._waiting) >= _MOST_WAITING or any(copy.unit.size > _SMALL_BYTES for copy in self._waiting)

    def begin(self, unit: Unit, files: Files, victims: Iterable[Unit], is_held: Callable[[Unit], bool]) -> bool:
        """Begin to copy a unit in place of its victims, or to check one of an earlier generation.

        False where there is no room for it even without all units that nobody holds.
        """
        if unit in self._present or unit in self._copies:
            return True
        old = self._unchecked.get(unit)
        if old is None:
            for victim in victims:
                self._evict(victim)
            self.trim(self.max_bytes - unit.size, is_held)
            if self.num_bytes + unit.size > self.max_bytes:
                return False
            self.num_bytes += unit.size
        copy = _Copy(unit, files, self._directory.place(self._generation, unit.key, unit.name), old)
        self._copies[unit] = copy
        self._waiting.append(copy)
        return True

    def trim(self, most: int, is_held: Callable[[Unit], bool]) -> None:
        """Evict units that nobody holds, until there are at most so many bytes."""
        if self.num_bytes > most:
            for unit in [*self._unchecked, *self._present]:
                if self.num_bytes <= most:
                    return
                if not is_held(unit):
                    self._evict(unit)

    def _evict(self, unit: Unit) -> None:
        if unit in self._copies:
            return
        for found in (self._unchecked, self._present):
            path = found.pop(unit, None)
            if path is not None:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                self.num_bytes -= unit.size
                self._counters.add(evictions=1, evicted_bytes=unit.size)

    def request(self) -> None:
        """Make requests for the pieces of copies, in order, as many as may be in flight."""
        most = _FEWER_BYTES if self.gives_way else _MOST_BYTES
        while self._waiting and self._bytes_in_flight < most and len(self._in_flight) < _MOST_REQUESTS:
            copy = self._waiting[0]
            if copy.old is not None:
                self._waiting.popleft()
                self._submit([copy], 0, _check, copy)
            elif copy.unit.size <= _SMALL_BYTES:
                self._request_small(copy)
            elif (piece := next(copy.pieces, None)) is None:
                self._waiting.popleft()
            else:
                self._submit([copy], piece[1] - piece[0], _read, [copy], Ranges([piece[0]], [piece[1]]))

    def _request_small(self, first: _Copy) -> None:
        """Units of one file in one call: where each would take a round trip, they take one together."""
        path, stamp = first.unit.path, first.unit.stamp
        together: list[_Copy] = []
        num_bytes = 0
        for copy in [*self._waiting]:
            unit = copy.unit
            same = unit.path == path and unit.stamp == stamp and copy.old is None
            if same and unit.size <= _SMALL_BYTES and num_bytes + unit.size <= _PIECE_BYTES:
                together.append(copy)
                num_bytes += unit.size
                self._waiting.remove(copy)
        ranges = Ranges([copy.unit.first for copy in together], [copy.unit.end for copy in together])
        self._submit(together, num_bytes, _read, together, ranges)

    def _submit(self, copies: list[_Copy], num_bytes: int, work: Callable[..., Any], *args: Any) -> None:
        self._bytes_in_flight += num_bytes
        self._in_flight.append(_InFlight(copies, self._pool.submit(work, *args), num_bytes))

    def finish_some(self) -> list[Unit] | None:
        """Write what has arrived; returns the units that could not be copied, None where nothing was on its way."""
        self.request()
        if not self._in_flight:
            return None
        if not wait([self._in_flight[0].future], _WAIT_SECONDS).done:
            return []
        lost: list[Unit] = []
        while self._in_flight and self._in_flight[0].future.done():
            arrived = self._in_flight.popleft()
            self._bytes_in_flight -= arrived.num_bytes
            try:
                lost += self._take(arrived)
            except DiskError as error:
                error.units[:0] = lost
                raise
            self.request()
        return lost

    def _take(self, arrived: _InFlight) -> list[Unit]:
        """Write what a request brought; returns the units for which it failed."""
        copies = [copy for copy in arrived.copies if self._copies.get(copy.unit) is copy]  # the others failed before
        try:
            found = dict(zip((copy.unit for copy in arrived.copies), arrived.future.result(), strict=True))
        except (PlayheadError, OSError) as error:
            self._counters.add(failures=1)
            self.problem = self.problem or error
            return self._drop(copies)
        try:
            for copy in copies:
                self._arrived(copy, found[copy.unit])
        except OSError as error:
            raise DiskError(self._drop(copies), self.num_bytes) from error
        return []

    def _drop(self, copies: list[_Copy]) -> list[Unit]:
        """Give up those of some copies that are not finished."""
        unfinished = [copy for copy in copies if self._copies.get(copy.unit) is copy]
        for copy in unfinished:
            self._abandon(copy)
        return [copy.unit for copy in unfinished]

    def _arrived(self, copy: _Copy, data: Buffer | bool) -> None:
        if isinstance(data, bool):
            self._checked(copy, is_right=data)
            return
        if copy.file is None:
            copy.file = self._new_part(copy)
        _write_all(copy.file, data)
        copy.hash.update(data)
        copy.num_written += len(data)
        self._counters.add(copied_bytes=len(data))
        if copy.num_written == copy.unit.size:
            _write_all(copy.file, trailer(copy.hash))
            copy.file.close()
            _part(copy.path).replace(copy.path)
            self._present[copy.unit] = copy.path
            del self._copies[copy.unit]
            self._counters.add(copied_units=1)

    def _checked(self, copy: _Copy, *, is_right: bool) -> None:
        """A unit of an earlier generation is used again, or copied anew."""
        assert copy.old is not None
        if is_right:
            self._new_folder(copy)
            copy.old.replace(copy.path)
            self._unchecked.pop(copy.unit, None)
            self._present[copy.unit] = copy.path
            del self._copies[copy.unit]
            self._counters.add(kept_units=1, kept_bytes=copy.unit.size)
            return
        self._unchecked.pop(copy.unit, None)
        with suppress(OSError):
            copy.old.unlink()
        self._counters.add(damaged_units=1)
        copy.old = None
        self._waiting.appendleft(copy)

    def _new_part(self, copy: _Copy) -> BinaryIO:
        self._new_folder(copy)
        return _part(copy.path).open("wb", buffering=0)

    def _new_folder(self, copy: _Copy) -> None:
        for folder in (copy.path.parent.parent, copy.path.parent):  # not their parents: the cache may have been removed
            folder.mkdir(exist_ok=True)
        origin = copy.path.with_name(ORIGIN)
        if not origin.exists():
            stamp = copy.unit.stamp
            write_whole(origin, msgspec.json.encode(Origin(copy.unit.path, stamp.size, stamp.mark)))

    def _abandon(self, copy: _Copy) -> None:
        del self._copies[copy.unit]
        if copy.old is None:  # else what is there stays, and is checked again when it is needed
            self.num_bytes -= copy.unit.size
        with suppress(ValueError):
            self._waiting.remove(copy)
        if copy.file is not None:
            with suppress(OSError):
                copy.file.close()
        with suppress(OSError):
            _part(copy.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Drop what is on its way."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for copy in [*self._copies.values()]:
            self._abandon(copy)
        self._directory.remove_empty()


def _write_all(file: BinaryIO, data: Buffer) -> None:
    """Law: every byte, or an OSError. A disk that is nearly full takes the first bytes and says so only then."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)


def _read(copies: list[_Copy], ranges: Ranges) -> Sequence[Buffer]:
    unit = copies[0].unit
    return copies[0].files.read(unit.path, unit.stamp, ranges)


def _check(copy: _Copy) -> list[bool]:
    assert copy.old is not None
    return [is_intact(copy.old, copy.unit.size)]


def remove_parts(directory: CacheDirectory) -> None:
    """Remove what a killed filler left half copied. Only the holder of the filler's lock may."""
    for stored in directory.stored():
        if stored.span is None:
            with suppress(OSError):
                os.unlink(stored.path)  # noqa: PTH108
