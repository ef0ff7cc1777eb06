"""An index, opened: its arrays mapped, its shard table read."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from playhead.errors import NotPreparedError, StoreError
from playhead.formats.contract import Fetch, Rows, Shard
from playhead.index.arrays import map_array
from playhead.index.integrity import damaged
from playhead.index.layout import VERSION, Meta, ShardEntry, decode_file, file_name
from playhead.seeds import hash_text
from playhead.store import Spans, read_ahead, stamp, unreadable
from playhead.types import Array, IntArray, LengthArray, UIntArray


@dataclass(frozen=True)
class Index:
    """All rows of a source, before selection. Its rows are called raw rows."""

    directory: Path
    meta: Meta
    shard_starts: IntArray

    @cached_property
    def offsets(self) -> dict[str, UIntArray]:
        return {track: map_array(self._offsets_path(track), np.uint64) for track in self.meta.tracks}

    def _offsets_path(self, track: str) -> Path:
        return self.directory / "tracks" / file_name(track) / "offsets.npy"

    @cached_property
    def lengths(self) -> LengthArray | None:
        return None if self.meta.spec.length is None else map_array(self.directory / "lengths.npy", np.uint32)

    @cached_property
    def outputs(self) -> LengthArray | None:
        return None if self.meta.spec.output_length is None else map_array(self.directory / "outputs.npy", np.uint32)

    @cached_property
    def keys(self) -> UIntArray | None:
        return None if self.meta.spec.ids is None else map_array(self.directory / "keys.npy", np.uint64)

    def check_arrays(self) -> None:
        """Map every array that has one entry a row or a key; a broken index is refused here, not in mid-run."""
        spec, num_rows = self.meta.spec, self.meta.num_rows
        names = (*spec.columns, *(match.column for match in spec.matches))
        arrays = {"lengths": self.lengths, "outputs": self.outputs, "keys": self.keys}
        arrays |= {name: self.column(name) for name in names}
        expected = {name: num_rows for name, array in arrays.items() if array is not None}
        arrays |= self.offsets
        expected |= dict.fromkeys(self.offsets, num_rows + len(self.meta.shards))
        for name, size in expected.items():
            array = arrays[name]
            if array is not None and len(array) != size:
                raise NotPreparedError(
                    f"{self.directory}: the index is broken",
                    found=f"{len(array):,} entries in {name}",
                    expected=f"{size:,}",
                    fix="run `playhead prepare --force` on the recipe",
                )

    def preload(self) -> None:
        """Have the system start reading the lengths, in order, while we go on."""
        for name, lengths in (("lengths", self.lengths), ("outputs", self.outputs)):
            if lengths is not None:
                path = self.directory / f"{name}.npy"
                try:
                    read_ahead(path)
                except OSError as error:
                    raise unreadable(str(path), error) from error

    def column(self, name: str) -> Array:
        dtype = np.float32 if name in self.meta.spec.columns else np.uint8
        return map_array(self.directory / "columns" / f"{file_name(name)}.npy", dtype)

    def shards_of(self, raw: IntArray) -> IntArray:
        """The shard of each raw row."""
        return np.searchsorted(self.shard_starts, raw, side="right").astype(np.int64) - 1

    @cached_property
    def shards(self) -> list[Shard]:
        return [entry.shard(self.meta.roles) for entry in self.meta.shards]

    def locate(self, raw: IntArray, fetch: Fetch) -> Rows:
        """Where raw rows are, in the order given, to be read through `fetch`."""
        shards = self.shards
        if len(shards) == 1:
            return Rows(shards * len(raw), raw, self._spans(raw, np.zeros(1, np.int64)), fetch)
        of_row = self.shards_of(raw)
        numbers = raw - self.shard_starts[of_row]
        return Rows([shards[i] for i in of_row.tolist()], numbers, self._spans(raw + of_row, of_row), fetch)

    def _spans(self, places: IntArray, shards: IntArray) -> dict[str, Spans]:
        """The bytes of rows, each track having one sentinel a shard among its offsets."""
        after = places + 1
        found = {}
        for track, offsets in self.offsets.items():
            firsts, ends = offsets[places], offsets[after]
            if (firsts > ends).any() or (ends > self._track_sizes[track][shards]).any():
                raise self._impossible(track, firsts, ends, shards)
            found[track] = Spans(firsts.tolist(), ends.tolist())
        return found

    @cached_property
    def _track_sizes(self) -> dict[str, UIntArray]:
        """The size of each shard's file of a track: no row ends after it."""
        files = {track: self.meta.roles.index(track) for track in self.meta.tracks}
        return {
            track: np.array([entry.files[file].size for entry in self.meta.shards], dtype=np.uint64)
            for track, file in files.items()
        }

    def _impossible(self, track: str, firsts: UIntArray, ends: UIntArray, shards: IntArray) -> NotPreparedError:
        sizes = np.broadcast_to(self._track_sizes[track][shards], firsts.shape)
        at = int(np.flatnonzero((firsts > ends) | (ends > sizes))[0])
        file = self.shards[int(np.broadcast_to(shards, firsts.shape)[at])].path(track)
        return damaged(
            self._offsets_path(track),
            f"a row from byte {int(firsts[at]):,} to byte {int(ends[at]):,} of {file}",
            f"a row inside its {int(sizes[at]):,} bytes",
        )

    def find(self, sample_id: str) -> IntArray:
        """The raw rows with an id, in order; none where ids were not indexed."""
        keys = self.keys
        if keys is None:
            return np.empty(0, dtype=np.int64)
        wanted = hash_text(sample_id)
        low = bisect.bisect_left(range(len(keys)), wanted, key=lambda i: int(keys[i, 0]))
        high = bisect.bisect_right(range(len(keys)), wanted, lo=low, key=lambda i: int(keys[i, 0]))
        rows = keys[low:high, 1]
        if (rows >= self.meta.num_rows).any():
            raise damaged(self.directory / "keys.npy", f"row {int(rows.max()):,} of {self.meta.num_rows:,}")
        return rows.astype(np.int64)


def read_meta(directory: Path) -> Meta | None:
    """The meta of an index; None where there is none that this version can read."""
    meta = decode_file(directory / "meta.json", Meta)
    return meta if meta is not None and meta.version == VERSION else None


def open_index(directory: Path) -> Index | None:
    meta = read_meta(directory)
    if meta is None:
        return None
    starts = np.zeros(len(meta.shards) + 1, dtype=np.int64)
    np.cumsum([shard.num_rows for shard in meta.shards], out=starts[1:])
    return Index(directory, meta, starts)


def check_shard(entry: ShardEntry, source: str) -> None:
    """Refuse a shard that is not what it was: its offsets would read garbage."""
    for file in entry.files:
        found = stamp(file.path)
        if found != file.stamp:
            raise StoreError(
                f'{file.path}: changed since source "{source}" was indexed',
                found=f"{found.size:,} bytes, modification mark {found.mark}",
                expected=f"{file.size:,} bytes, modification mark {file.mark}",
                fix="run `playhead prepare` on the recipe again, or restore the file",
            )
