"""Building an index: the chunks of all shards, in order, streamed into its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from playhead.formats.contract import Chunk
from playhead.formats.schema import KEYS, LENGTHS, OUTPUTS, Track, index_schema
from playhead.index.arrays import ArrayWriter
from playhead.index.keys import KeySorter
from playhead.index.layout import VERSION, Layout, Meta, ShardEntry
from playhead.store import replacing
from playhead.types import Array, IntArray


@dataclass(frozen=True)
class IndexShape:
    """The shards of an index in order, and the files, tracks and types of columns that each of them has."""

    shards: tuple[ShardEntry, ...]
    roles: tuple[str, ...]
    tracks: tuple[Track, ...]
    types: Mapping[str, str] = field(default_factory=dict)


class IndexBuilder:
    """Takes every chunk of every shard in order; the sizes of all arrays are known beforehand.

    Law: the bytes it writes depend on the chunks' rows only, not on how rows were divided into chunks.
    """

    def __init__(
        self, directory: Path, layout: Layout, shape: IndexShape, sizes: Mapping[str, int], memory_bytes: int
    ) -> None:
        self._directory, self._layout, self._shape = directory, layout, shape
        self._num_rows = sum(shard.num_rows for shard in shape.shards)
        self._sums = {LENGTHS: 0, OUTPUTS: 0}
        self._keys = None
        self._writers: dict[str, ArrayWriter] = {}
        for name, array in index_schema(layout.spec, shape.tracks).items():
            if name == KEYS:
                self._keys = KeySorter(directory, self._num_rows, memory_bytes)
            else:
                self._writers[name] = ArrayWriter(directory / f"{name}.npy", array.dtype, (sizes[name],))

    def add(self, chunk: Chunk) -> None:
        """The next rows."""
        for name, values in chunk.arrays.items():
            if name in self._writers:
                self._writers[name].add(values)
            if name in self._sums:
                self._sums[name] += int(values.sum(dtype=np.uint64))

    def add_ids(self, hashes: Array, rows: IntArray) -> None:
        """Some ids with their raw rows, in any order."""
        if self._keys is not None:
            self._keys.add(hashes, rows)

    def finish(self, generator_key: int | None = None) -> Meta:
        """Complete every file; the meta is written last."""
        digests = {name: writer.close() for name, writer in self._writers.items()}
        if self._keys is not None:
            digests[KEYS] = self._keys.write(self._directory / f"{KEYS}.npy")
        meta = Meta(
            version=VERSION,
            fingerprint=self._layout.fingerprint,
            format=self._layout.registered.name,
            patterns=self._layout.patterns,
            roles=self._shape.roles,
            tracks=self._shape.tracks,
            shards=self._shape.shards,
            num_rows=self._num_rows,
            length_sum=self._sums[LENGTHS],
            output_sum=self._sums[OUTPUTS],
            spec=self._layout.spec,
            digests=dict(sorted(digests.items())),
            generator_key=generator_key,
            types=dict(self._shape.types),
        )
        with replacing(self._directory / "meta.json") as file:
            file.write(msgspec.json.format(msgspec.json.encode(meta), indent=1))
        return meta

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
