"""From parts, and an older index, to the index: every shard in order, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from playhead.formats.contract import Chunk
from playhead.index.build import IndexBuilder
from playhead.index.layout import Layout, Meta, ShardEntry
from playhead.index.opened import Index
from playhead.prepare.parts import read_part
from playhead.prepare.stretches import read_lengths
from playhead.store import fresh_directory, swap_directory

_ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Piece:
    """A shard of the index to be, and where its rows are: in a part, or in a shard of an older index.

    `lengths` are the files of its measured lengths, in order; None where they are with its rows.
    """

    entry: ShardEntry
    part: Path | None = None
    old_shard: int | None = None
    lengths: tuple[Path, ...] | None = None


@dataclass(frozen=True)
class Contents:
    """All that an index is made of. Every piece has the same roles and tracks."""

    pieces: tuple[Piece, ...]
    roles: tuple[str, ...]
    tracks: tuple[str, ...]
    generator_key: int | None = None


def merge(layout: Layout, contents: Contents, old: Index | None, memory_bytes: int) -> Meta:
    """Build the index and put it in place of the old one, whole or not at all."""
    directory = fresh_directory(layout.directory.with_name(f"{layout.directory.name}.new"))
    entries = [piece.entry for piece in contents.pieces]
    builder = IndexBuilder(directory, layout, entries, (contents.roles, contents.tracks), memory_bytes)
    try:
        first = 0
        for piece in contents.pieces:
            chunks = _ids_added(builder, chunks_of(piece, old), first)
            builder.add_shard(chunks if piece.lengths is None else _with_lengths(chunks, piece.lengths))
            first += piece.entry.num_rows
        if old is not None:
            _move_ids(builder, contents.pieces, old)
        meta = builder.finish(contents.generator_key)
    finally:
        builder.abandon()
    swap_directory(directory, layout.directory)
    return meta


def chunks_of(piece: Piece, old: Index | None) -> Iterator[Chunk]:
    """The rows of a shard as they were scanned."""
    if piece.part is not None:
        return read_part(piece.part)
    assert old is not None
    assert piece.old_shard is not None
    return _old_chunks(old, piece.old_shard)


def _ids_added(builder: IndexBuilder, chunks: Iterator[Chunk], first: int) -> Iterator[Chunk]:
    for chunk in chunks:
        if chunk.ids is not None:
            builder.add_ids(chunk.ids, np.arange(first, first + chunk.num_rows))
        first += chunk.num_rows
        yield chunk


def _with_lengths(chunks: Iterator[Chunk], paths: Sequence[Path]) -> Iterator[Chunk]:
    measured = map(read_lengths, paths)
    ready = np.empty(0, dtype=np.uint32)
    for chunk in chunks:
        while ready.size < chunk.num_rows:
            ready = np.concatenate([ready, next(measured)])
        yield replace(chunk, lengths=ready[: chunk.num_rows])
        ready = ready[chunk.num_rows :]


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
