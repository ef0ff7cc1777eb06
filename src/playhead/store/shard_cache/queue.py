"""The units that the filler of a shard cache has decided to copy, for readers that could wait for one.

The file holds rows of (key, first byte, end) as 64-bit numbers, sorted, behind their number and a checksum. It is
written in place: a reader that meets it half written finds the checksum wrong, and looks again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from playhead.store.shard_cache.directory import QUEUE, CacheDirectory, Unit, write_in_place

_HEAD = struct.Struct("<QQ")
_MOST = 1 << 14


def write_queue(directory: CacheDirectory, units: Iterable[Unit]) -> None:
    rows = sorted((_number(unit.key), unit.first, unit.end) for unit, _ in zip(units, range(_MOST), strict=False))
    body = np.array(rows, np.uint64).tobytes()
    with suppress(OSError):
        write_in_place(directory.root / QUEUE, _HEAD.pack(len(rows), zlib.crc32(body)) + body)


def queued_spans(directory: CacheDirectory, key: str) -> list[tuple[int, int]] | None:
    """The units of a file that are to be copied, in order; None while that cannot be known."""
    rows = _read(directory)
    if rows is None:
        return None
    number = _number(key)
    low, high = np.searchsorted(rows[:, 0], np.array([number, number + 1], np.uint64))
    return [(first, end) for _, first, end in rows[low:high].tolist()]


def is_within(first: int, end: int, spans: Iterable[tuple[int, int]]) -> bool:
    """Whether every byte of a range is in one of some spans, which are sorted."""
    for low, high in spans:
        if low <= first < high:
            first = high
    return first >= end


def _number(key: str) -> int:
    return int(key[:15], 16)


def _read(directory: CacheDirectory) -> npt.NDArray[np.uint64] | None:
    data = b""
    with suppress(OSError):
        data = (directory.root / QUEUE).read_bytes()
    if not data:
        return np.empty((0, 3), np.uint64)
    if len(data) < _HEAD.size:
        return None
    count, checksum = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + 24 * count]
    if len(body) != 24 * count or zlib.crc32(body) != checksum:
        return None
    return np.frombuffer(body, np.uint64).reshape(count, 3)
