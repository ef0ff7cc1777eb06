"""Samples longer than a micro-batch can hold, under `overlong: error`."""

from __future__ import annotations

from playhead.errors import DataError
from playhead.index.table import Table
from playhead.recipe.tree import Leaf
from playhead.recipe.units import for_people
from playhead.recipe.values import Unit


def check_overlong(leaf: Leaf, table: Table) -> None:
    """Refuse a source whose longest sample passes the limit, naming that sample."""
    if leaf.batching.overlong != "error":
        return
    _check(leaf, table, "length", leaf.limit, table.longest, leaf.unit)
    _check(leaf, table, "output length", leaf.output_limit, table.longest_output, leaf.output_unit)


def _check(leaf: Leaf, table: Table, what: str, limit: int | None, longest: tuple[int, int] | None, unit: Unit) -> None:
    if limit is None or longest is None or longest[1] <= limit:
        return
    row, length = longest
    raise DataError(
        f'{leaf.path} "{leaf.source.name}": row {row:,} is longer than {leaf.batching_path} can hold',
        found=f"{what} {for_people(length, unit)} in {table.place(row)}",
        expected=f"at most {for_people(limit, unit)}",
        fix=f"raise the limit, or add `overlong: drop` (or `alone`, or `truncate`) to {leaf.batching_path}",
    )
