"""Warnings about orders in which files are slow to read."""

from __future__ import annotations

from collections.abc import Mapping

from playhead.formats.registry import format_of
from playhead.index.table import Table
from playhead.recipe.tree import Leaf, branches, evaluation_branch
from playhead.recipe.values import Recipe


def reading_warnings(recipe: Recipe, tables: Mapping[str, Table], split: str | None = None) -> list[str]:
    """A warning for each source whose shuffle makes a reader decode blocks repeatedly, with the fix."""
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    found = [_warning(leaf, tables[leaf.path]) for branch in chosen for leaf in branch.leaves()]
    return [warning for warning in found if warning is not None]


def _warning(leaf: Leaf, table: Table) -> str | None:
    """A reader keeps the blocks of two groups of the shuffle; see `decodes_blocks` in formats/contract.py."""
    source, track = leaf.source, table.block_track
    if track is None or not getattr(format_of(source, leaf.path).format, "decodes_blocks", False):
        return None
    num_rows, num_shards = table.index.meta.num_rows, len(table.index.meta.shards)
    num_blocks = len(table.index.block_starts(track)) - 1
    each = f"a block of {num_rows / num_blocks:,.0f} rows"
    if source.shuffle == "global" and num_blocks > 1:
        problem, remedy = "`shuffle: global` decodes", "`shuffle: shards` and `shuffle_unit: block`"
    elif source.shuffle == "shards" and source.shuffle_unit == "shard" and num_blocks > 2 * num_shards:
        problem, remedy = "`shuffle: shards` over shards of several blocks decodes", "`shuffle_unit: block`"
    else:
        return None
    return f"{source.name}: {problem} {each} ({num_blocks:,} in all) for nearly every row; write {remedy}"
