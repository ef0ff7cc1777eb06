"""From parts, and an older index, to the index: every shard in order, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from playhead.formats.contract import Chunk
from playhead.index.build import IndexBuilder
from playhead.index.layout import Layout, Meta, ShardEntry
from playhead.index.opened import Index
from playhead.prepare.parts import read_part
from playhead.store import fresh_directory, swap_directory

_ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Piece:
    """A shard of the index to be, and where its rows are: in a part, or in a shard of an older index."""

    entry: ShardEntry
    part: Path | None = None
    old_shard: int | None = None


def merge(
    layout: Layout,
    pieces: Sequence[Piece],
    shape: tuple[tuple[str, ...], tuple[str, ...]],
    old: Index | None,
    memory_bytes: int,
) -> Meta:
    """Build the index and put it in place of the old one, whole or not at all."""
    directory = fresh_directory(layout.directory.with_name(f"{layout.directory.name}.new"))
    builder = IndexBuilder(directory, layout, [piece.entry for piece in pieces], shape, memory_bytes)
    try:
        first = 0
        for piece in pieces:
            builder.add_shard(_chunks(builder, piece, old, first))
            first += piece.entry.num_rows
        if old is not None:
            _move_ids(builder, pieces, old)
        meta = builder.finish()
    finally:
        builder.abandon()
    swap_directory(directory, layout.directory)
    return meta


def _chunks(builder: IndexBuilder, piece: Piece, old: Index | None, first: int) -> Iterator[Chunk]:
    if piece.part is None:
        assert old is not None
        assert piece.old_shard is not None
        yield from _old_chunks(old, piece.old_shard)
        return
    for chunk in read_part(piece.part):
        if chunk.ids is not None:
            builder.add_ids(chunk.ids, np.arange(first, first + chunk.num_rows))
        first += chunk.num_rows
        yield chunk


def _old_chunks(old: Index, shard: int) -> Iterator[Chunk]:
    """The rows of a shard as an older index has them, ids aside: those are sorted among all others."""
    spec = old.meta.spec
    columns = {name: old.column(name) for name in (*spec.columns, *(match.column for match in spec.matches))}
    start, end = int(old.shard_starts[shard]), int(old.shard_starts[shard + 1])
    for low in range(start, end, _ROWS_AT_ONCE):
        high = min(low + _ROWS_AT_ONCE, end)
        yield Chunk(
            high - low,
            {track: offsets[low + shard : high + shard] for track, offsets in old.offsets.items()},
            {track: int(offsets[high + shard]) for track, offsets in old.offsets.items()},
            None if old.lengths is None else old.lengths[low:high],
            None if old.outputs is None else old.outputs[low:high],
            {name: column[low:high] for name, column in columns.items()},
        )


def _move_ids(builder: IndexBuilder, pieces: Sequence[Piece], old: Index) -> None:
    """The ids of reused shards, under their new rows."""
    keys = old.keys
    if keys is None:
        return
    moved = np.full(len(old.meta.shards), -1, dtype=np.int64)
    first = 0
    for piece in pieces:
        if piece.part is None:
            moved[piece.old_shard] = first
        first += piece.entry.num_rows
    for low in range(0, len(keys), _ROWS_AT_ONCE):
        hashes, rows = np.asarray(keys[low : low + _ROWS_AT_ONCE]).T
        raw = rows.astype(np.int64)
        shards = old.shards_of(raw)
        kept = moved[shards] >= 0
        builder.add_ids(hashes[kept], (raw - old.shard_starts[shards] + moved[shards])[kept])
