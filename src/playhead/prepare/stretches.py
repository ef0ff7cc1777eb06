"""Stretches: the rows of a shard in pieces that are measured on their own, so that one large file is work for many.

The lengths of a stretch are kept as a file of uint32 beside the parts until the index is in place, which is what a
killed run need not do again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from playhead.fingerprint import digest
from playhead.formats.contract import Chunk, Rows, Shard
from playhead.index.layout import FileEntry
from playhead.store import OpenFiles, Spans, open_file, replacing
from playhead.types import IntArray, LengthArray, UIntArray

MOST_ROWS = 1 << 12
MOST_BYTES = 1 << 25
Bounds = dict[str, UIntArray]

_LENGTH = np.dtype("<u4")


@dataclass(frozen=True)
class Stretch:
    """Rows of a shard, the first of them its row `number` and the source's raw row `raw_row`.

    `bounds` holds the first byte of each row in each track, and one more: where the last row ends.
    """

    shard: Shard
    files: tuple[FileEntry, ...]
    number: int
    raw_row: int
    num_rows: int
    bounds: Bounds

    @property
    def name(self) -> str:
        return f"{self.shard.name}, rows {self.number:,} to {self.number + self.num_rows - 1:,}"

    def files_to_read(self) -> OpenFiles:
        """The shard's files, refused if they are no longer those that were scanned."""
        return OpenFiles({file.path: file.stamp for file in self.files}.get)

    def rows(self, low: int, high: int, files: OpenFiles) -> Rows:
        """Some of its rows, counted from its first, as a format reads them."""
        spans = {
            track: Spans(bounds[low:high].tolist(), bounds[low + 1 : high + 1].tolist())
            for track, bounds in self.bounds.items()
        }
        numbers = np.arange(self.number + low, self.number + high)
        return Rows([self.shard] * (high - low), numbers, spans, files)

    def path(self, directory: Path, generator_key: int | None) -> Path:
        """Lengths are found again by the rows they are of and, if made with random numbers, by what these depend on."""
        drawn = None if generator_key is None else [generator_key, self.raw_row]
        return directory / f"{digest([self.files, self.number, self.num_rows, drawn])}.lengths"


def cut(chunks: Iterable[Chunk], shard: Shard, files: tuple[FileEntry, ...], raw_row: int) -> Iterator[Stretch]:
    """The stretches of a shard whose first row is a raw row. Law: how rows were cut into chunks does not matter."""
    number = 0
    for count, bounds in _pieces(chunks):
        yield Stretch(shard, files, number, raw_row + number, count, bounds)
        number += count


def _pieces(chunks: Iterable[Chunk]) -> Iterator[tuple[int, Bounds]]:
    """Rows by number and bounds. A row's end is the start of the next, so one row at least waits until the last."""
    waiting = 0
    bounds: Bounds = {}
    ends: dict[str, int] = {}
    for chunk in chunks:
        waiting, ends = waiting + chunk.num_rows, dict(chunk.ends)
        bounds = {
            track: np.concatenate([bounds[track], offsets]) if track in bounds else np.asarray(offsets)
            for track, offsets in chunk.offsets.items()
        }
        while (count := _full(bounds, waiting - 1)) is not None:
            yield count, {track: offsets[: count + 1] for track, offsets in bounds.items()}
            waiting, bounds = waiting - count, {track: offsets[count:] for track, offsets in bounds.items()}
    bounds = {track: np.append(offsets, np.uint64(ends[track])) for track, offsets in bounds.items()}
    while waiting:
        count = _full(bounds, waiting) or waiting
        yield count, {track: offsets[: count + 1] for track, offsets in bounds.items()}
        waiting, bounds = waiting - count, {track: offsets[count:] for track, offsets in bounds.items()}


def batches(stretch: Stretch, num_bytes: int, num_rows: int) -> Iterator[tuple[int, int]]:
    """The rows of a stretch, counted from its first, in batches to be read at once: one row at least."""
    sizes = _sizes(stretch.bounds, stretch.num_rows)
    low = 0
    while low < stretch.num_rows:
        fitting = int(np.searchsorted(sizes, sizes[low] + num_bytes, side="right")) - 1
        high = min(max(low + 1, fitting), low + num_rows, stretch.num_rows)
        yield low, high
        low = high


def write_lengths(path: Path, lengths: list[int]) -> None:
    with replacing(path) as file:
        file.write(np.array(lengths, dtype=_LENGTH).tobytes())


def has_lengths(path: Path, stretch: Stretch) -> bool:
    return path.is_file() and path.stat().st_size == stretch.num_rows * _LENGTH.itemsize


def read_lengths(path: Path) -> LengthArray:
    with open_file(str(path)) as file:
        return np.frombuffer(file.read(0, file.size), dtype=_LENGTH)


def _full(bounds: Bounds, known: int) -> int | None:
    """How many rows make a stretch, of those whose ends are known; None if there may be room for more."""
    seen = min(known, MOST_ROWS)
    if seen < 1:
        return None
    sizes = _sizes({track: offsets[: seen + 1] for track, offsets in bounds.items()}, seen)
    if seen < MOST_ROWS and sizes[-1] <= MOST_BYTES:
        return None
    return max(1, int(np.searchsorted(sizes, MOST_BYTES, side="right")) - 1)


def _sizes(bounds: Bounds, num_rows: int) -> IntArray:
    """The bytes in all tracks before each row, and before the end; without a track, none."""
    sizes = np.zeros(num_rows + 1, dtype=np.int64)
    for offsets in bounds.values():
        sizes += (offsets[: num_rows + 1] - offsets[0]).astype(np.int64)
    return sizes
