"""An opened index: its arrays mapped, its shard table read."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from playhead.errors import NotPreparedError
from playhead.formats.places import places_of, starts_of
from playhead.formats.rows import Fetch, Places, Rows, Shard
from playhead.formats.schema import KEYS, LENGTHS, OUTPUTS, ArrayType, Track, column, index_schema
from playhead.index.arrays import map_array
from playhead.index.integrity import damaged
from playhead.index.layout import VERSION, Meta, decode_file
from playhead.seeds import hash_text
from playhead.store import Stamp, read_ahead, unreadable
from playhead.store.mapped import SMALLEST_MAPPED
from playhead.types import Array, IntArray, LengthArray, UIntArray


@dataclass(frozen=True)
class Index:
    """All rows of a source, before selection. Its rows are called raw rows."""

    directory: Path
    meta: Meta
    shard_starts: IntArray

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Every array of the schema, mapped."""
        return {name: map_array(self.array_path(name), array.dtype) for name, array in self._schema.items()}

    @cached_property
    def _schema(self) -> dict[str, ArrayType]:
        return index_schema(self.meta.spec, self.meta.tracks)

    def array_path(self, name: str) -> str:
        return f"{self.directory}/{name}.npy"

    @property
    def lengths(self) -> LengthArray | None:
        return self.arrays.get(LENGTHS)

    @property
    def outputs(self) -> LengthArray | None:
        return self.arrays.get(OUTPUTS)

    @property
    def keys(self) -> UIntArray | None:
        return self.arrays.get(KEYS)

    def column(self, name: str) -> Array:
        return self.arrays[column(name)]

    def check_arrays(self) -> None:
        """Map every array; a broken index is refused here, not in mid-run."""
        sizes = {"row": self.meta.num_rows, "bound": self.meta.num_rows + len(self.meta.shards)}
        expected = {name: sizes[array.per] for name, array in self._schema.items() if array.per != "block"}
        found = {name: len(array) for name, array in self.arrays.items()}
        for track in self.meta.tracks:
            if track.kind == "blocks":
                num_blocks = found[track.array("block_rows")]
                expected |= dict.fromkeys(track.arrays, num_blocks)
        for name, size in expected.items():
            if found[name] != size:
                raise NotPreparedError(
                    f"{self.directory}: the index is broken",
                    found=f"{found[name]:,} entries in {name}",
                    expected=f"{size:,}",
                    fix="run `playhead prepare --force` on the recipe",
                )

    def preload(self) -> None:
        """Ask the system to start reading the lengths in the background."""
        for name in (LENGTHS, OUTPUTS):
            if name in self.arrays and self.arrays[name].nbytes >= SMALLEST_MAPPED:
                try:
                    read_ahead(self.array_path(name))
                except OSError as error:
                    raise unreadable(self.array_path(name), error) from error

    def shards_of(self, raw: IntArray) -> IntArray:
        """The shard of each raw row."""
        return np.searchsorted(self.shard_starts, raw, side="right").astype(np.int64) - 1

    @cached_property
    def shards(self) -> list[Shard]:
        return [entry.shard(self.meta.roles) for entry in self.meta.shards]

    @cached_property
    def stamps(self) -> dict[str, Stamp]:
        """The stamp of every file when it was indexed."""
        return {file.path: file.stamp for entry in self.meta.shards for file in entry.files}

    def locate(self, raw: IntArray, fetch: Fetch | None = None) -> Rows:
        """Where raw rows are, in the order given, to be read through `fetch` if one is given."""
        shards, (of_row, places) = self.shards, self.places(raw)
        if len(shards) == 1:
            return Rows(shards * len(raw), raw, places, fetch)
        return Rows([shards[i] for i in of_row.tolist()], raw - self.shard_starts[of_row], places, fetch)

    def places(self, raw: IntArray) -> tuple[IntArray, dict[str, Places]]:
        """The shards of raw rows (one number if there is a single shard), and where the rows are in each track."""
        of_row = np.zeros(1, np.int64) if len(self.meta.shards) == 1 else self.shards_of(raw)
        return of_row, {track.name: self._places(track, raw, of_row) for track in self.meta.tracks}

    def _places(self, track: Track, raw: IntArray, shards: IntArray) -> Places:
        """Where raw rows, each of a shard, are in a track."""
        starts = self.block_starts(track) if track.kind == "blocks" else None
        places = places_of(track.kind, self._track_arrays[track.name], raw, shards, starts)
        backward, beyond = places.firsts > places.ends, places.ends > self._track_sizes[track.name][shards]
        if np.count_nonzero(backward) or np.count_nonzero(beyond):  # `any` takes longer for few rows
            raise self._impossible(track, places, shards)
        return places

    @cached_property
    def _track_arrays(self) -> dict[str, tuple[Array, ...]]:
        """The arrays of each track: offsets, or firsts and ends of rows or blocks, in the order of the schema."""
        return {track.name: tuple(self.arrays[name] for name in track.arrays) for track in self.meta.tracks}

    def block_starts(self, track: Track) -> IntArray:
        """The first raw row of each block of a track, and the number of all rows."""
        return self._block_starts[track.name]

    @cached_property
    def _block_starts(self) -> dict[str, IntArray]:
        found = {}
        for track in self.meta.tracks:
            if track.kind == "blocks":
                starts = found[track.name] = starts_of(self.arrays[track.array("block_rows")])
                if starts[-1] != self.meta.num_rows:
                    path = self.array_path(track.array("block_rows"))
                    raise damaged(path, f"blocks of {int(starts[-1]):,} rows", f"{self.meta.num_rows:,} rows")
        return found

    @cached_property
    def _track_sizes(self) -> dict[str, UIntArray]:
        """The size of each shard's file of a track: no row ends after it."""
        files = {track.name: self.meta.roles.index(track.name) for track in self.meta.tracks}
        return {
            track: np.array([entry.files[file].size for entry in self.meta.shards], dtype=np.uint64)
            for track, file in files.items()
        }

    def _impossible(self, track: Track, places: Places, shards: IntArray) -> NotPreparedError:
        firsts, ends = places.firsts, places.ends
        sizes = np.broadcast_to(self._track_sizes[track.name][shards], firsts.shape)
        at = int(np.flatnonzero((firsts > ends) | (ends > sizes))[0])
        file = self.shards[int(np.broadcast_to(shards, firsts.shape)[at])].path(track.name)
        return damaged(
            self.array_path(next(iter(track.arrays))),
            f"a row from byte {int(firsts[at]):,} to byte {int(ends[at]):,} of {file}",
            f"a row inside its {int(sizes[at]):,} bytes",
        )

    def find(self, sample_id: str) -> IntArray:
        """The raw rows with an id, in order; none if ids were not indexed."""
        keys = self.keys
        if keys is None:
            return np.empty(0, dtype=np.int64)
        wanted = hash_text(sample_id)
        low = bisect.bisect_left(range(len(keys)), wanted, key=lambda i: int(keys[i, 0]))
        high = bisect.bisect_right(range(len(keys)), wanted, lo=low, key=lambda i: int(keys[i, 0]))
        rows = keys[low:high, 1]
        if (rows >= self.meta.num_rows).any():
            raise damaged(self.array_path(KEYS), f"row {int(rows.max()):,} of {self.meta.num_rows:,}")
        return rows.astype(np.int64)


def read_meta(directory: Path) -> Meta | None:
    """The meta of an index; None if there is none that this version can read."""
    meta = decode_file(f"{directory}/meta.json", Meta)
    return meta if meta is not None and meta.version == VERSION else None


def open_index(directory: Path) -> Index | None:
    meta = read_meta(directory)
    if meta is None:
        return None
    return Index(directory, meta, starts_of([shard.num_rows for shard in meta.shards]))
