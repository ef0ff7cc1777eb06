"""A sample's length after the map against its length in the plan: a pack or a budget never overflows silently."""

from __future__ import annotations

from typing import Any

import numpy as np

from playhead.errors import SampleError
from playhead.index.table import Table
from playhead.recipe.tree import Leaf
from playhead.recipe.units import ceil_div, for_people
from playhead.recipe.values import Pack, Recipe

Sample = dict[str, Any]


class LengthError(SampleError):
    """A sample that is not as long as planned: its own rule of the recipe says what becomes of it."""


def check_length(sample: Sample, planned: int, recipe: Recipe, leaf: Leaf, table: Table, row: int) -> Sample:
    """The sample itself, or cut to its planned length; SampleError where the recipe allows neither.

    A sample of the planned length passes; so does a shorter one, unless mismatches are errors. One that the plan
    counts as cut (`overlong: truncate`) is cut here.
    """
    found = actual_length(sample, recipe, leaf)
    if found is None or found == planned or (planned == 1 and found == 0):
        return sample
    if found > planned and _cut_by_plan(leaf, table, row, planned):
        return truncated(sample, recipe, leaf, planned)
    if recipe.on_length_mismatch == "error":
        raise _mismatch(recipe, leaf, planned, found)
    if found < planned:
        return sample
    if recipe.on_length_mismatch == "truncate":
        return truncated(sample, recipe, leaf, planned)
    raise _mismatch(recipe, leaf, planned, found)


def actual_length(sample: Sample, recipe: Recipe, leaf: Leaf) -> int | None:
    """The length of a mapped sample in the plan's units; None where its sequence field does not tell."""
    if recipe.sequence not in sample:
        if isinstance(leaf.batching, Pack) and recipe.collate == "pad":
            raise SampleError(
                f'the sample has no field "{recipe.sequence}" to pack',
                found=f"fields: {', '.join(map(str, sample)) or 'none'}",
                fix="make it in `map`, or name another with `sequence: <field>`",
            )
        return None
    size = _size(sample[recipe.sequence])
    if size is None or leaf.unit != "seconds":
        return size
    return None if recipe.sequence_rate is None else ceil_div(size * 1000, round(recipe.sequence_rate))


def truncated(sample: Sample, recipe: Recipe, leaf: Leaf, planned: int) -> Sample:
    """The sample with its sequence, and every field that runs along it, cut to the planned length."""
    size = _size(sample[recipe.sequence])
    keep = planned
    if leaf.unit == "seconds" and recipe.sequence_rate is not None:
        keep = planned * round(recipe.sequence_rate) // 1000
    return {name: value[:keep] if _size(value) == size else value for name, value in sample.items()}


def cut(sample: Sample, recipe: Recipe, leaf: Leaf, planned: int) -> Sample:
    """The sample, not longer than planned where its sequence field tells."""
    found = actual_length(sample, recipe, leaf)
    return sample if found is None or found <= planned else truncated(sample, recipe, leaf, planned)


def _size(value: Any) -> int | None:
    if isinstance(value, list | tuple | bytes):
        return len(value)
    shape = getattr(value, "shape", None)  # arrays of numpy, torch or jax alike
    return int(shape[0]) if shape else None


def _cut_by_plan(leaf: Leaf, table: Table, row: int, planned: int) -> bool:
    if leaf.batching.overlong != "truncate" or planned != leaf.limit:
        return False
    return int(table.lengths_of(np.array([row]))[0]) > planned


def _mismatch(recipe: Recipe, leaf: Leaf, planned: int, found: int) -> LengthError:
    return LengthError(
        f'the sample is not as long as planned: field "{recipe.sequence}"',
        found=for_people(found, leaf.unit),
        expected=f"{for_people(planned, leaf.unit)}, its length in the index",
        fix="measure true lengths (`length: {measure: true}` and `playhead prepare --measure`), "
        "or say `on_length_mismatch: truncate` or `substitute`",
    )
