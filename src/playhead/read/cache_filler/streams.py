"""The streams that read through a shard cache: what their ranks on this node will need, in units of the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from playhead.formats.registry import format_of
from playhead.index.table import Table
from playhead.plan.cursor import Cursor
from playhead.plan.plan import Plan
from playhead.read.needs import Needed, Sources, StepNeeds, needed_steps
from playhead.recipe.values import Recipe
from playhead.resolve.open import map_tables, plan_tables
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import Files, compression_of
from playhead.store.shard_cache.directory import Unit
from playhead.store.shard_cache.ranks import LiveRank

BLOCK_BYTES = 1 << 23  # of a file whose format has no blocks


class StreamKey(NamedTuple):
    """The ranks that follow one stream together: of one recipe, one split of it and one world."""

    job: str
    split: str | None
    world_size: int

    @classmethod
    def of(cls, rank: LiveRank) -> StreamKey:
        return cls(rank.about.job, rank.about.split, rank.about.world_size)


class CachedStream:
    """A stream opened from its recipe: the files of its tables, and what each of its steps needs of them."""

    def __init__(self, recipe: Recipe, key: StreamKey, files: Files) -> None:
        assert recipe.shard_cache is not None
        self.options = recipe.shard_cache
        tables = map_tables(recipe, key.split, files)
        self._plan: Plan = plan_tables(recipe, tables, key.split, key.world_size)
        self._sources = [
            [(leaf, tables[leaf.path]) for leaf in leaves] for leaves in leaves_by_stream(recipe, key.split)
        ]
        self._world_size = key.world_size
        self.files = files
        self._blocks = dict(_blocks(self._sources))
        self._compressed: dict[str, Unit] = {}

    def start(self) -> Cursor:
        return self._plan.start()

    def steps(self, start: tuple[int, ...], ranks: Iterable[int]) -> Iterator[tuple[int, dict[Unit, int]]]:
        """What steps from a cursor on need, on some ranks: units in order of need, and the bytes read of each."""
        cursor = replace(Cursor.from_record([*start]), receipt=None)  # receipts would have to be computed
        for found in needed_steps(self._plan, self._sources, cursor, [*ranks], self._world_size):
            yield found.step, self._units(found)

    def _units(self, needs: StepNeeds) -> dict[Unit, int]:
        units: dict[Unit, int] = {}
        for needed in needs.files:
            for unit, num_bytes in self._units_of(needed):
                units[unit] = units.get(unit, 0) + num_bytes
        return units

    def _units_of(self, needed: Needed) -> Iterator[tuple[Unit, int]]:
        path, stamp = needed.path, needed.stamp
        if compression_of(path) is not None:
            yield self._compressed_unit(path), _num_bytes(needed)
        elif path in self._blocks:
            blocks = self._read_of_blocks(needed)
            if self.options.unit == "shard":
                yield Unit(path, stamp, 0, stamp.size), sum(num_bytes for _, _, num_bytes in blocks)
            else:
                yield from ((Unit(path, stamp, first, end), num_bytes) for first, end, num_bytes in blocks)
        elif self.options.unit == "shard":
            yield Unit(path, stamp, 0, stamp.size), _num_bytes(needed)
        elif self.options.unit == "range":
            for first, end in np.unique(np.stack([needed.firsts, needed.ends]), axis=1).T.tolist():
                if first < end:
                    yield Unit(path, stamp, first, end), end - first
        else:
            yield from _grid(path, needed)

    def _read_of_blocks(self, needed: Needed) -> list[tuple[int, int, int]]:
        """Each block once: its first byte, its end, and the bytes that are read of it without a cache."""
        row_bytes = self._blocks[needed.path]
        firsts, places, counts = np.unique(needed.firsts, return_index=True, return_counts=True)
        found = zip(firsts.tolist(), needed.ends[places].tolist(), counts.tolist(), strict=True)
        return [
            (first, end, end - first if row_bytes is None else min(end - first, row_bytes * count))
            for first, end, count in found
            if first < end
        ]

    def _compressed_unit(self, path: str) -> Unit:
        """A compressed file is copied whole: where its rows are is known only in what it decompresses to."""
        if path not in self._compressed:
            stamp = self.files.stamp(path)
            self._compressed[path] = Unit(path, stamp, 0, stamp.size)
        return self._compressed[path]


def _grid(path: str, needed: Needed) -> Iterator[tuple[Unit, int]]:
    """Pieces of equal size: those that hold the rows."""
    firsts, ends = needed.firsts.astype(np.int64), needed.ends.astype(np.int64)
    sizes: dict[int, int] = {}
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        for number in range(first // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            inside = min(end, (number + 1) * BLOCK_BYTES) - max(first, number * BLOCK_BYTES)
            sizes[number] = sizes.get(number, 0) + inside
    for number, num_bytes in sizes.items():
        first = number * BLOCK_BYTES
        yield Unit(path, needed.stamp, first, min(first + BLOCK_BYTES, needed.stamp.size)), num_bytes


def _num_bytes(needed: Needed) -> int:
    return int((needed.ends - needed.firsts).sum())


def _blocks(sources: Sources) -> Iterator[tuple[str, int | None]]:
    """The files whose rows are in blocks, with the bytes of a row; None where a block is read whole for a row of it."""
    for leaf, table in chain.from_iterable(sources):
        meta = table.index.meta
        whole = getattr(format_of(leaf.source, leaf.path).format, "decodes_blocks", False)
        for track in meta.tracks:
            if track.kind == "blocks":
                role = meta.roles.index(track.name)
                for shard in meta.shards:
                    file = shard.files[role]
                    yield file.path, None if whole else -(-file.size // max(1, shard.num_rows))


def num_bytes_of(tables: Iterable[Table]) -> int:
    """The size of all files of some tables together."""
    return sum(
        {file.path: file.size for table in tables for shard in table.index.meta.shards for file in shard.files}.values()
    )
