"""The units of a shard cache as one process reads them: found by listing, kept open, closed when they are evicted."""

from __future__ import annotations

import errno
import os
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from typing import NamedTuple

from playhead.errors import DataError, StoreError
from playhead.store.files import Ranges, Stamp
from playhead.store.local import OpenedFile, most_open_here
from playhead.store.shard_cache.directory import PART, TRAILER_BYTES, CacheDirectory, key_of, regular_files, span_of

LIST_SECONDS = 0.25
_LISTING_SHARE = 20  # a twentieth of the time at most is spent with listing
_QUICK_SECONDS = 0.002
_SWEEP_SECONDS = 1.0
_MOST_OPEN = 64


class UnitPiece(NamedTuple):
    """A part of a range: some bytes of a unit's file."""

    opened: OpenedFile
    first: int
    end: int


Cover = list[UnitPiece] | None  # the pieces of a range; None where some of it is not in the cache
Spans = list[tuple[int, int]]


@dataclass
class CachedFile:
    """The units of one file of the storage, as they were when they were last listed; those in progress are parts."""

    folder: str
    key: str
    spans: Spans = field(default_factory=list)
    parts: Spans = field(default_factory=list)
    changed_at: int = -1  # the time of the folder's last change, as it was last seen
    seen_at: float = -inf  # when that was first seen
    listed_at: float = -inf
    list_seconds: float = 0.0  # how long listing took


class CachedUnits:
    """The units of one generation of a cache. Threads may share it."""

    def __init__(self, directory: CacheDirectory, generation: int) -> None:
        self.generation = generation
        self._folder = f"{directory.units}/{generation}"
        self._files: dict[tuple[str, Stamp], CachedFile] = {}
        self._open: OrderedDict[str, OpenedFile] = OrderedDict()
        self._most_open = min(_MOST_OPEN, most_open_here())
        self._lock = Lock()
        self._swept_at = 0.0

    def file(self, path: str, stamp: Stamp) -> CachedFile:
        known = self._files.get((path, stamp))
        if known is None:
            key = key_of(path, stamp)
            known = self._files[path, stamp] = CachedFile(f"{self._folder}/{key}/", key)
        return known

    def covers(self, file: CachedFile, ranges: Ranges, *, anew: bool = False) -> list[Cover]:
        """The pieces of each range in units that are there; `anew` lists them even if they seem to be the same."""
        if anew:
            file.listed_at = -inf
        _list_units(file)
        self._close_evicted()
        return [self._cover(file, first, end) for first, end in zip(*ranges, strict=True)]

    def _cover(self, file: CachedFile, first: int, end: int) -> Cover:
        pieces: list[UnitPiece] = []
        while first < end:
            found = self._piece(file, first, end)
            if found is None:
                return None
            pieces.append(found)
            first += found.end - found.first
        return pieces

    def _piece(self, file: CachedFile, first: int, end: int) -> UnitPiece | None:
        """The first bytes of a range, as many as one unit has."""
        span = _containing(file.spans, first)
        if span is None and file.list_seconds > _QUICK_SECONDS:
            span = (first, end)  # perhaps it is new
        if span is not None:
            opened = self._opened(file, span)
            if opened is not None:
                return UnitPiece(opened, first - span[0], min(end, span[1]) - span[0])
        span = _containing(file.parts, first)
        if span is not None and end <= span[1]:
            opened = self._opened(file, span, PART)
            if opened is not None and opened.stamp_now().size >= end - span[0]:
                return UnitPiece(opened, first - span[0], end - span[0])
        return None

    def _opened(self, file: CachedFile, span: tuple[int, int], suffix: str = "") -> OpenedFile | None:
        path = f"{file.folder}{span[0]:x}-{span[1]:x}{suffix}"
        with self._lock:
            opened = self._open.get(path)
            if opened is not None:
                self._open.move_to_end(path)
                return opened
        opened = self._newly_opened(path)
        if opened is None:
            return None
        if not suffix and opened.stamp.size != span[1] - span[0] + TRAILER_BYTES:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - a damaged copy
            return None
        with self._lock:
            self._open[path] = opened
            while len(self._open) > self._most_open:
                self._open.popitem(last=False)
        return opened

    def _newly_opened(self, path: str) -> OpenedFile | None:
        """None where there is no such file. When descriptors run out, those of other copies are closed, and fewer are
        kept open from then on.
        """
        try:
            return OpenedFile(path)
        except DataError:
            return None
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
        with self._lock:
            self._most_open = max(1, len(self._open) // 2)
            self._open.clear()
        with suppress(OSError, DataError):
            return OpenedFile(path)
        return None

    def _close_evicted(self) -> None:
        """Close files that were evicted, so that their space becomes free."""
        now = time.monotonic()
        if now - self._swept_at < _SWEEP_SECONDS:
            return
        with self._lock:
            self._swept_at = now
            for path in [path for path, opened in self._open.items() if opened.is_unlinked()]:
                del self._open[path]


def read_covers(covers: Sequence[Cover]) -> dict[int, bytes]:
    """The bytes of the ranges that are covered, by their number; one that cannot be read is left out."""
    by_unit: dict[int, tuple[OpenedFile, Ranges, list[tuple[int, int]]]] = {}
    for i, pieces in enumerate(covers):
        for j, piece in enumerate(pieces or ()):
            _, ranges, places = by_unit.setdefault(id(piece.opened), (piece.opened, Ranges([], []), []))
            ranges.firsts.append(piece.first)
            ranges.ends.append(piece.end)
            places.append((i, j))
    parts: dict[tuple[int, int], bytes] = {}
    for opened, ranges, places in by_unit.values():
        with suppress(OSError, StoreError):
            parts |= dict(zip(places, opened.read(ranges), strict=True))
    found: dict[int, bytes] = {}
    for i, pieces in enumerate(covers):
        if pieces is not None and all((i, j) in parts for j in range(len(pieces))):
            found[i] = b"".join([parts[i, j] for j in range(len(pieces))])
    return found


def _list_units(file: CachedFile) -> None:
    """List the units of a file again if they may have changed since.

    The clocks of directories are coarse: a listing is final only some time after the last change was first seen. And
    listing many units takes a while: it is done now and then, for `_piece` finds a unit of its own name without it.
    """
    now = time.monotonic()
    try:
        changed_at = os.stat(file.folder).st_mtime_ns  # noqa: PTH116 - for every read
    except OSError:
        file.spans, file.parts, file.changed_at = [], [], -1
        return
    if changed_at != file.changed_at:
        file.changed_at, file.seen_at = changed_at, now
    elif file.listed_at - file.seen_at > LIST_SECONDS:
        return
    if now - file.listed_at < _LISTING_SHARE * file.list_seconds:
        return
    spans, parts = [], []
    with suppress(OSError):
        for entry in regular_files(file.folder):
            if (span := span_of(entry.name)) is not None:
                spans.append(span)
            elif entry.name.endswith(PART) and (span := span_of(entry.name.removesuffix(PART))) is not None:
                parts.append(span)
    file.spans, file.parts = _outermost(spans), _outermost(parts)
    file.listed_at, file.list_seconds = now, time.monotonic() - now


def _outermost(spans: Spans) -> Spans:
    """The spans, sorted, without those inside another: jobs with units of different kinds may share a directory."""
    found: Spans = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or span[1] > found[-1][1]:
            found.append(span)
    return found


def _containing(spans: Spans, byte: int) -> tuple[int, int] | None:
    """The last span that begins at or before a byte, if the byte is in it."""
    i = bisect_right(spans, (byte, 1 << 63)) - 1
    return spans[i] if i >= 0 and byte < spans[i][1] else None
