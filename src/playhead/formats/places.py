"""Where rows are in a track, by the arrays of the schema."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from playhead.formats.rows import Places
from playhead.formats.schema import TrackKind
from playhead.types import Array, IntArray


def places_of(
    kind: TrackKind, arrays: Sequence[Array], rows: IntArray, shards: IntArray | int, block_starts: IntArray | None
) -> Places:
    """The places of rows by the arrays of their track, in the order of the schema.

    `shards` is the number of shards before each row: as many sentinels are among the offsets. `block_starts` are the
    first rows of blocks.
    """
    if kind == "offsets":
        at = rows + shards
        return Places(arrays[0][at], arrays[0][at + 1])
    if kind == "spans":
        return Places(arrays[0][rows], arrays[1][rows])
    assert block_starts is not None
    blocks = np.searchsorted(block_starts, rows, side="right") - 1
    return Places(arrays[0][blocks], arrays[1][blocks], rows - block_starts[blocks])


def starts_of(counts: Sequence[int] | Array) -> IntArray:
    """The sum of the counts before each, and of all."""
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.asarray(counts, dtype=np.int64).cumsum(out=starts[1:])
    return starts
