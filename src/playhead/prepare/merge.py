"""From parts, and an older index, to the index: every shard in order, streamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from playhead.errors import DataError
from playhead.formats.contract import Chunk
from playhead.formats.schema import IDS, LENGTHS, ArrayType, schema_of
from playhead.index.build import IndexBuilder, IndexShape
from playhead.index.layout import Layout, Meta, ShardEntry
from playhead.index.opened import Index
from playhead.prepare.parts import PartSummary, read_part
from playhead.prepare.stretches import read_lengths
from playhead.store import fresh_directory, swap_directory

_ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class ShardPiece:
    """A shard of the new index, and where its rows are: in parts, or in a shard of an older index.

    `lengths` are the files of its measured lengths, in order; None if they are stored with its rows.
    """

    entry: ShardEntry
    parts: tuple[tuple[Path, PartSummary], ...] = ()
    old_shard: int | None = None
    lengths: tuple[Path, ...] | None = None


@dataclass(frozen=True)
class Contents:
    """Everything that an index is made from."""

    pieces: tuple[ShardPiece, ...]
    shape: IndexShape
    generator_key: int | None = None


def merge(layout: Layout, contents: Contents, old: Index | None, memory_bytes: int) -> Meta:
    """Build the index and replace the old one atomically."""
    directory = fresh_directory(layout.directory.with_name(f"{layout.directory.name}.new"))
    builder = IndexBuilder(directory, layout, contents.shape, _sizes(layout, contents, old), memory_bytes)
    try:
        first = 0
        for piece in contents.pieces:
            chunks = chunks_of(piece, old)
            for chunk in chunks if piece.lengths is None else _with_lengths(chunks, piece.lengths):
                builder.add(chunk)
                if IDS in chunk.arrays:
                    builder.add_ids(chunk.arrays[IDS], np.arange(first, first + chunk.num_rows))
                first += chunk.num_rows
        if old is not None:
            _move_ids(builder, contents.pieces, old)
        meta = builder.finish(contents.generator_key)
    finally:
        builder.abandon()
    swap_directory(directory, layout.directory)
    return meta


def chunks_of(piece: ShardPiece, old: Index | None) -> Iterator[Chunk]:
    """The rows of a shard as they were scanned."""
    for path, summary in piece.parts:
        yield from read_part(path, summary)
    if piece.old_shard is not None:
        assert old is not None
        yield from _old_chunks(old, piece.old_shard)


def _sizes(layout: Layout, contents: Contents, old: Index | None) -> Counter[str]:
    """The size of every array of the new index. Sizes that do not match the schema are refused."""
    schema = schema_of(layout.spec, contents.shape.tracks)
    sizes: Counter[str] = Counter()
    for piece in contents.pieces:
        num_rows = piece.entry.num_rows
        counts = {name: num_rows + (array.per == "bound") for name, array in schema.items() if array.per != "block"}
        found = dict(counts)
        if piece.old_shard is not None:
            assert old is not None
            low_high = _bounds(old, schema, piece.old_shard)
            found |= {name: high - low for name, (low, high) in low_high.items() if schema[name].per == "block"}
        else:
            scanned: Counter[str] = Counter()
            for _, summary in piece.parts:
                scanned.update(summary.sizes)
            found |= {name: 0 for name, array in schema.items() if array.per == "bound"} | scanned
        for name, expected in counts.items():
            if found[name] != expected:
                raise DataError(
                    f"{piece.entry.name}: its format returned an array of the wrong size",
                    found=f"{found[name]:,} entries in {name}",
                    expected=f"{expected:,} for {num_rows:,} rows",
                    fix="report it to the author of the format; see docs/formats.md on chunks",
                )
        sizes.update(found)
    return sizes


def _bounds(old: Index, schema: dict[str, ArrayType], shard: int) -> dict[str, tuple[int, int]]:
    """Where the entries of a shard are in each array of an index, ids aside."""
    start, end = int(old.shard_starts[shard]), int(old.shard_starts[shard + 1])
    bounds = {"row": (start, end), "bound": (start + shard, end + shard + 1)}
    found = {name: bounds[array.per] for name, array in schema.items() if array.per != "block" and name != IDS}
    for track in old.meta.tracks:
        if track.kind == "blocks":
            low, high = np.searchsorted(old.block_starts(track), [start, end]).tolist()
            found |= dict.fromkeys(track.arrays, (low, high))
    return found


def _with_lengths(chunks: Iterator[Chunk], paths: Sequence[Path]) -> Iterator[Chunk]:
    measured = map(read_lengths, paths)
    ready = np.empty(0, dtype=np.uint32)
    for chunk in chunks:
        while ready.size < chunk.num_rows:
            ready = np.concatenate([ready, next(measured)])
        yield replace(chunk, arrays={**chunk.arrays, LENGTHS: ready[: chunk.num_rows]})
        ready = ready[chunk.num_rows :]


def _old_chunks(old: Index, shard: int) -> Iterator[Chunk]:
    """The rows of a shard from an older index, without ids: those are sorted among all others."""
    schema = schema_of(old.meta.spec, old.meta.tracks)
    bounds = _bounds(old, schema, shard)
    num_rows = int(old.shard_starts[shard + 1] - old.shard_starts[shard])
    whole = any(array.per == "block" for array in schema.values())  # a chunk has whole blocks
    step = max(1, num_rows) if whole else _ROWS_AT_ONCE
    for low in range(0, max(1, num_rows), step):  # a shard without rows also has a sentinel
        high = min(low + step, num_rows)
        arrays = {}
        for name, (first, end) in bounds.items():
            last = end if high == num_rows else first + high  # the sentinel comes with the last rows
            arrays[name] = old.arrays[name][first + low : last]
        yield Chunk(high - low, arrays)


def _move_ids(builder: IndexBuilder, pieces: Sequence[ShardPiece], old: Index) -> None:
    """The ids of reused shards, under their new rows."""
    keys = old.keys
    if keys is None:
        return
    moved = np.full(len(old.meta.shards), -1, dtype=np.int64)
    first = 0
    for piece in pieces:
        if piece.old_shard is not None:
            moved[piece.old_shard] = first
        first += piece.entry.num_rows
    for low in range(0, len(keys), _ROWS_AT_ONCE):
        hashes, rows = np.asarray(keys[low : low + _ROWS_AT_ONCE]).T
        raw = rows.astype(np.int64)
        shards = old.shards_of(raw)
        kept = moved[shards] >= 0
        builder.add_ids(hashes[kept], (raw - old.shard_starts[shards] + moved[shards])[kept])
