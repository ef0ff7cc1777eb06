"""A source cut into parts of whole shards, or whole blocks, one per sub-stream, for storage locality."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from playhead.errors import RecipeError
from playhead.recipe.tree import Leaf
from playhead.types import IntArray


def shard_ranges(leaf: Leaf, shard_rows: IntArray, num_parts: int) -> list[tuple[int, int]]:
    """Consecutive ranges of shards (or blocks) [first, stop) with about as many rows each.

    Law: together they are all shards, and each has a row.
    """
    filled, unit = np.flatnonzero(shard_rows), leaf.source.shuffle_unit
    if len(filled) < num_parts:
        raise RecipeError(
            f'{leaf.path} "{leaf.source.name}": cannot be cut into {num_parts} parts of whole {unit}s',
            found=f"{len(filled)} {unit}s with rows, {int(shard_rows.sum()):,} rows",
            expected=f"at least {num_parts} {unit}s with rows",
            fix=f"lower `parts`, or write the source into more {unit}s",
        )
    before = np.concatenate(([0], np.cumsum(shard_rows)))
    cuts = [0]
    for part in range(1, num_parts):
        even = int(np.searchsorted(before, int(before[-1]) * part // num_parts))
        lowest = int(filled[np.searchsorted(filled, cuts[-1])]) + 1
        highest = int(filled[part - num_parts])
        cuts.append(min(max(even, lowest), highest))
    return list(pairwise([*cuts, len(shard_rows)]))
