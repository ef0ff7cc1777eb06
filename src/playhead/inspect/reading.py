"""Warnings about orders in which files are slow to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from playhead.formats.registry import format_of
from playhead.index.table import Table
from playhead.recipe.tree import Leaf, branches, evaluation_branch
from playhead.recipe.values import Recipe


def reading_warnings(recipe: Recipe, tables: Mapping[str, Table], split: str | None = None) -> list[str]:
    """A warning for each source whose shuffle makes a reader decode blocks repeatedly, with the fix."""
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    found = {leaf.source.name: slow_order(leaf, tables[leaf.path]) for branch in chosen for leaf in branch.leaves()}
    return [f"{name}: {slow.problem}; write {slow.remedy}" for name, slow in found.items() if slow is not None]


class SlowOrder(NamedTuple):
    """What an order makes a reader do, and what to write in its place."""

    problem: str
    remedy: str


def slow_order(leaf: Leaf, table: Table) -> SlowOrder | None:
    """A reader keeps the blocks of two groups of the shuffle; see `decodes_blocks` in formats/contract.py."""
    source, track = leaf.source, table.block_track
    if track is None or not getattr(format_of(source, leaf.path).format, "decodes_blocks", False):
        return None
    num_rows, num_shards = table.index.meta.num_rows, len(table.index.meta.shards)
    num_blocks = len(table.index.block_starts(track)) - 1
    each = f"a block of {num_rows / num_blocks:,.0f} rows ({num_blocks:,} in all) for nearly every row"
    if source.shuffle == "global" and num_blocks > 1:
        return SlowOrder(f"`shuffle: global` decodes {each}", "`shuffle: shards` and `shuffle_unit: block`")
    if source.shuffle == "shards" and source.shuffle_unit == "shard" and num_blocks > 2 * num_shards:
        return SlowOrder(f"`shuffle: shards` over shards of several blocks decodes {each}", "`shuffle_unit: block`")
    return None
