"""Building an index: the chunks of all shards, in order, streamed into its arrays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from playhead.formats.contract import Chunk
from playhead.index.arrays import ArrayWriter
from playhead.index.keys import KeySorter
from playhead.index.layout import VERSION, Layout, Meta, ShardEntry, file_name
from playhead.store import replacing
from playhead.types import Array, IntArray


class IndexBuilder:
    """Takes every chunk of every shard in order; the numbers of rows are known beforehand.

    Law: the bytes it writes depend on the chunks' rows only, not on how rows were cut into chunks.
    """

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        shards: Iterable[ShardEntry],
        shape: tuple[tuple[str, ...], tuple[str, ...]],
        memory_bytes: int,
    ) -> None:
        self._directory = directory
        self._layout = layout
        self._shards = tuple(shards)
        self._roles, self._tracks = shape
        self._num_rows = sum(shard.num_rows for shard in self._shards)
        self._sums = {"lengths": 0, "outputs": 0}
        self._writers: dict[str, ArrayWriter] = {}
        self._keys = None
        if layout.spec.ids is not None:
            self._keys = KeySorter(directory, self._num_rows, memory_bytes)
        for name, dtype in _arrays(layout, self._tracks).items():
            size = self._num_rows + (len(self._shards) if name.startswith("tracks/") else 0)
            self._writers[name] = ArrayWriter(directory / f"{name}.npy", dtype, (size,))

    def add_shard(self, chunks: Iterable[Chunk]) -> None:
        """The next shard."""
        ends: dict[str, int] = {}
        for chunk in chunks:
            ends = dict(chunk.ends)
            for name, values in _values(chunk).items():
                self._writers[name].add(values)
            for name, lengths in (("lengths", chunk.lengths), ("outputs", chunk.outputs)):
                if lengths is not None:
                    self._sums[name] += int(lengths.sum(dtype=np.uint64))
        for track in self._tracks:
            self._writers[_offsets(track)].add(np.array([ends[track]], dtype=np.uint64))

    def add_ids(self, hashes: Array, rows: IntArray) -> None:
        """Some ids with their raw rows, in any order."""
        if self._keys is not None:
            self._keys.add(hashes, rows)

    def finish(self, generator_key: int | None = None) -> Meta:
        """Complete every file; the meta is written last."""
        digests = {name: writer.close() for name, writer in self._writers.items()}
        if self._keys is not None:
            digests["keys"] = self._keys.write(self._directory / "keys.npy")
        meta = Meta(
            version=VERSION,
            fingerprint=self._layout.fingerprint,
            format=self._layout.registered.name,
            patterns=self._layout.patterns,
            roles=self._roles,
            tracks=self._tracks,
            shards=self._shards,
            num_rows=self._num_rows,
            length_sum=self._sums["lengths"],
            output_sum=self._sums["outputs"],
            spec=self._layout.spec,
            digests=dict(sorted(digests.items())),
            generator_key=generator_key,
        )
        with replacing(self._directory / "meta.json") as file:
            file.write(msgspec.json.format(msgspec.json.encode(meta), indent=1))
        return meta

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()


def _arrays(layout: Layout, tracks: tuple[str, ...]) -> dict[str, Any]:
    """Every array of an index with its type, ids aside."""
    arrays: dict[str, Any] = {_offsets(track): np.uint64 for track in tracks}
    if layout.spec.length is not None:
        arrays["lengths"] = np.uint32
    if layout.spec.output_length is not None:
        arrays["outputs"] = np.uint32
    arrays |= {_column(name): np.float32 for name in layout.spec.columns}
    arrays |= {_column(match.column): np.uint8 for match in layout.spec.matches}
    return arrays


def _values(chunk: Chunk) -> dict[str, Array]:
    values: dict[str, Array] = {_offsets(track): offsets for track, offsets in chunk.offsets.items()}
    if chunk.lengths is not None:
        values["lengths"] = chunk.lengths
    if chunk.outputs is not None:
        values["outputs"] = chunk.outputs
    return values | {_column(name): column for name, column in chunk.columns.items()}


def _offsets(track: str) -> str:
    return f"tracks/{file_name(track)}/offsets"


def _column(name: str) -> str:
    return f"columns/{file_name(name)}"
