"""Samples longer than a micro-batch can hold, under `overlong: error`."""

from __future__ import annotations

import numpy as np

from playhead.errors import DataError
from playhead.index.rules import held_by
from playhead.index.table import Table
from playhead.recipe.tree import Leaf
from playhead.recipe.units import readable
from playhead.recipe.values import Unit

_STRETCH = 1 << 20


def check_overlong(leaf: Leaf, table: Table) -> None:
    """Refuse a source with a sample that no micro-batch can hold, naming that sample."""
    if leaf.batching.overlong != "error":
        return
    _check(leaf, table, "length", leaf.limit, table.longest, leaf.unit)
    _check(leaf, table, "output length", leaf.output_limit, table.longest_output, leaf.output_unit)
    _check_held(leaf, table)


def _check(leaf: Leaf, table: Table, what: str, limit: int | None, longest: tuple[int, int] | None, unit: Unit) -> None:
    if limit is None or longest is None or longest[1] <= limit:
        return
    row, length = longest
    raise DataError(
        f'{leaf.path} "{leaf.source.name}": row {row:,} is longer than {leaf.batching_path} can hold',
        found=f"{what} {readable(length, unit)} in {table.place(row)}",
        expected=f"at most {readable(limit, unit)}",
        fix=f"raise the limit, or add `overlong: drop` (or `alone`, or `truncate`) to {leaf.batching_path}",
    )


def _check_held(leaf: Leaf, table: Table) -> None:
    """Buckets that hold shorter outputs for longer inputs can refuse a sample within both limits: check all rows."""
    frontier = leaf.frontier
    if frontier is None:
        return
    for low in range(0, table.num_rows, _STRETCH):
        rows = np.arange(low, min(low + _STRETCH, table.num_rows))
        lengths, outputs = table.lengths_of(rows), table.outputs_of(rows)
        refused = np.flatnonzero(~held_by(frontier, lengths, outputs))
        if len(refused):
            at = int(refused[0])
            row = int(rows[at])
            length, output = readable(int(lengths[at]), leaf.unit), readable(int(outputs[at]), leaf.output_unit)
            raise DataError(
                f'{leaf.path} "{leaf.source.name}": row {row:,} is in none of the buckets of {leaf.batching_path}',
                found=f"length {length}, output length {output} in {table.place(row)}",
                expected="a bucket that holds both",
                fix=f"add one, or add `overlong: drop` (or `alone`, or `truncate`) to {leaf.batching_path}",
            )
