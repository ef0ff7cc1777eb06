"""A source cut into parts of whole shards, one per sub-stream, for storage locality."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from playhead.errors import RecipeError
from playhead.recipe.tree import Leaf
from playhead.types import IntArray


def shard_ranges(leaf: Leaf, shard_rows: IntArray, num_parts: int) -> list[tuple[int, int]]:
    """Consecutive ranges of shards [first, stop) with about as many rows each. Law: together they are all shards."""
    before = np.concatenate(([0], np.cumsum(shard_rows)))
    goals = [int(before[-1]) * part // num_parts for part in range(1, num_parts)]
    cuts = [0, *(int(np.searchsorted(before, goal)) for goal in goals), len(shard_rows)]
    ranges = list(pairwise(cuts))
    if any(before[stop] <= before[first] for first, stop in ranges):
        raise RecipeError(
            f'{leaf.path} "{leaf.source.name}": cannot be cut into {num_parts} parts of whole shards',
            found=f"{int(np.count_nonzero(shard_rows))} shards with rows, {int(before[-1]):,} rows",
            expected=f"at least {num_parts} shards of similar size",
            fix="lower `parts`, or write the source into more shards",
        )
    return ranges
