"""Stretches: the rows of a shard in separately read pieces, so that several workers can share one large file.

The lengths of a stretch are kept as a file of uint32 beside the parts until the index is written, so that a killed run
can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from playhead.fingerprint import digest
from playhead.formats.contract import Chunk
from playhead.formats.places import places_of, starts_of
from playhead.formats.rows import Fetch, Places, Rows, Shard
from playhead.formats.schema import Track
from playhead.index.layout import FileEntry
from playhead.store import Files, replacing
from playhead.types import IntArray, LengthArray

MOST_ROWS = 1 << 12
MOST_BYTES = 1 << 25

_LENGTH = np.dtype("<u4")


@dataclass(frozen=True)
class Stretch:
    """Rows of a shard, the first of them its row `number` and the source's raw row `raw_row`."""

    shard: Shard
    files: tuple[FileEntry, ...]
    number: int
    raw_row: int
    num_rows: int
    places: dict[str, Places]

    @property
    def name(self) -> str:
        return f"{self.shard.name}, rows {self.number:,} to {self.number + self.num_rows - 1:,}"

    def fetch(self, files: Files) -> Fetch:
        """The shard's files; files that changed since they were scanned are refused."""
        return Fetch(files, {file.path: file.stamp for file in self.files})

    def rows(self, low: int, high: int, fetch: Fetch) -> Rows:
        """Some of its rows, counted from its first, as a format reads them."""
        places = {track: found[low:high] for track, found in self.places.items()}
        return Rows([self.shard] * (high - low), np.arange(self.number + low, self.number + high), places, fetch)

    def path(self, directory: Path, generator_key: int | None) -> Path:
        """The file name of the lengths: it depends on their rows and, if they are random, on their seed."""
        drawn = None if generator_key is None else [generator_key, self.raw_row]
        return directory / f"{digest([self.files, self.number, self.num_rows, drawn])}.lengths"


def cut(
    chunks: Iterable[Chunk], tracks: tuple[Track, ...], shard: Shard, files: tuple[FileEntry, ...], raw_row: int
) -> Iterator[Stretch]:
    """The stretches of a shard whose first row is a raw row. Law: they do not depend on the chunks."""
    number = 0
    for count, places in _pieces(chunks, tracks):
        yield Stretch(shard, files, number, raw_row + number, count, places)
        number += count


def placed_rows(chunks: Iterable[Chunk], tracks: tuple[Track, ...]) -> Iterator[tuple[int, dict[str, Places]]]:
    """Rows, by number and place in each track; a chunk is held until the next, which has the end of its last row."""
    waiting: Chunk | None = None
    for chunk in chunks:
        if not chunk.num_rows and not any(len(array) for array in chunk.arrays.values()):
            continue
        if waiting is not None and waiting.num_rows:
            yield waiting.num_rows, {track.name: _places(track, waiting, chunk) for track in tracks}
        waiting = chunk
    if waiting is not None and waiting.num_rows:
        yield waiting.num_rows, {track.name: _places(track, waiting, None) for track in tracks}


def _places(track: Track, chunk: Chunk, following: Chunk | None) -> Places:
    """The places of all rows of a chunk."""
    arrays = [chunk.arrays[name] for name in track.arrays]
    if track.kind == "offsets" and len(arrays[0]) == chunk.num_rows:
        assert following is not None, "the last offsets of a shard have a sentinel"
        arrays = [np.append(arrays[0], following.arrays[track.array("offsets")][0])]
    starts = starts_of(chunk.arrays[track.array("block_rows")]) if track.kind == "blocks" else None
    return places_of(track.kind, arrays, np.arange(chunk.num_rows), 0, starts)


def _pieces(chunks: Iterable[Chunk], tracks: tuple[Track, ...]) -> Iterator[tuple[int, dict[str, Places]]]:
    waiting, places = 0, dict[str, Places]()
    for num_rows, more in placed_rows(chunks, tracks):
        places = {track: _joined(places[track], found) if waiting else found for track, found in more.items()}
        waiting += num_rows
        while (count := _full(places, waiting)) is not None:
            yield count, {track: found[:count] for track, found in places.items()}
            waiting, places = waiting - count, {track: found[count:] for track, found in places.items()}
    if waiting:
        yield waiting, places


def _joined(places: Places, more: Places) -> Places:
    numbers = None
    if places.numbers is not None and more.numbers is not None:
        numbers = np.concatenate([places.numbers, more.numbers])
    return Places(np.concatenate([places.firsts, more.firsts]), np.concatenate([places.ends, more.ends]), numbers)


def batches(stretch: Stretch, num_bytes: int, num_rows: int) -> Iterator[tuple[int, int]]:
    """The rows of a stretch, counted from its first, in batches to be read at once: one row at least."""
    sizes = _sizes(stretch.places, stretch.num_rows)
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
    return np.fromfile(path, dtype=_LENGTH)


def _full(places: dict[str, Places], waiting: int) -> int | None:
    """How many rows make a stretch; None if more rows may fit."""
    seen = min(waiting, MOST_ROWS + 1)
    if seen < 1:
        return None
    sizes = _sizes({track: found[:seen] for track, found in places.items()}, seen)
    if seen <= MOST_ROWS and sizes[-1] <= MOST_BYTES:
        return None
    fitting = int(np.searchsorted(sizes, MOST_BYTES, side="right")) - 1
    return max(1, min(fitting, MOST_ROWS))


def _sizes(places: dict[str, Places], num_rows: int) -> IntArray:
    """The bytes in all tracks before each row, and before the end; those of a block count with its first row."""
    sizes = np.zeros(num_rows + 1, dtype=np.int64)
    for found in places.values():
        each = (found.ends - found.firsts).astype(np.int64)
        if found.numbers is not None:
            each[found.numbers > 0] = 0
        sizes[1:] += np.cumsum(each)
    return sizes
