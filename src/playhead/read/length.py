"""A sample's length after the map against its length in the plan: a pack or a budget never overflows silently."""

from __future__ import annotations

from typing import Any

import numpy as np

from playhead.errors import SampleError
from playhead.formats.conversation import MediaInTokens
from playhead.formats.rows import Sample
from playhead.index.table import Table
from playhead.recipe.augment_lengths import changed_milliseconds, may_be_shorter
from playhead.recipe.augments import Augment, Speed
from playhead.recipe.by_format import holds_conversations
from playhead.recipe.tree import Leaf, length_changes, map_of, template_of
from playhead.recipe.units import LARGEST_LENGTH, ceil_div, readable
from playhead.recipe.values import Pack, Recipe


class LengthError(SampleError):
    """A sample that is not as long as planned: `on_length_mismatch` of the recipe decides how it is handled."""


def check_length(sample: Sample, planned: int, recipe: Recipe, leaf: Leaf, table: Table, row: int) -> Sample:
    """The sample itself, or truncated to its planned length; SampleError if the recipe allows neither.

    A sample of the planned length passes; so does a shorter one, unless mismatches are errors. Lengths in seconds may
    differ by the recipe's tolerance; longer samples are truncated. A sample that the plan counts as truncated
    (`overlong: truncate`) is truncated here. A sample that cannot be compared with the plan is an error.
    """
    if not (is_compared(recipe, leaf) or _is_packed(recipe, leaf)):
        return sample
    if _sequence_size(sample, recipe) is None:
        raise _without_length(sample, planned, recipe, leaf)
    found = actual_length(sample, recipe, leaf)
    if found is None or not is_compared(recipe, leaf) or found == planned or (planned == 1 and found == 0):
        return sample
    if found < planned and _shorter_passes(recipe, leaf):
        return sample
    if abs(found - planned) <= _tolerance(recipe, leaf):
        return sample if found < planned else truncated(sample, recipe, leaf, planned)
    if found > planned and _cut_by_plan(leaf, table, row, planned):
        return truncated(sample, recipe, leaf, planned)
    if recipe.on_length_mismatch == "error":
        raise _mismatch(recipe, leaf, planned, found)
    if found < planned:
        return sample
    if recipe.on_length_mismatch == "truncate":
        return truncated(sample, recipe, leaf, planned)
    raise _mismatch(recipe, leaf, planned, found)


def all_as_planned(samples: list[Sample], planned: list[int], recipe: Recipe, leaf: Leaf) -> bool:
    """Whether every sample is as long as planned, checked for all of them at once; if not, check each.

    Law: if this is true, `check_length` returns every sample unchanged.
    """
    name, compared = recipe.sequence, is_compared(recipe, leaf)
    if name is None or not (compared or _is_packed(recipe, leaf)):
        return True
    values: list[Any] = [sample.get(name) for sample in samples]
    sizes: list[int | None] = [*map(len, values)] if {*map(type, values)} == {list} else [*map(_size, values)]
    if None in sizes or not compared:
        return None not in sizes
    if leaf.unit == "seconds":
        found = [_in_milliseconds(size, recipe) for size in sizes if size is not None]
        tolerance = LARGEST_LENGTH if _shorter_passes(recipe, leaf) else _tolerance(recipe, leaf)
        return all(0 <= wanted - size <= tolerance for size, wanted in zip(found, planned, strict=True))
    return sizes == planned


def _tolerance(recipe: Recipe, leaf: Leaf) -> int:
    """How far a length may be from the plan: milliseconds, of lengths in seconds. Slower audio may differ by more."""
    if leaf.unit != "seconds":
        return 0
    return changed_milliseconds(round(recipe.length_tolerance * 1000), _speeds(recipe, leaf))


def _speeds(recipe: Recipe, leaf: Leaf) -> list[Augment]:
    return [augment for augment in length_changes(recipe, leaf) if isinstance(augment, Speed)]


def _shorter_passes(recipe: Recipe, leaf: Leaf) -> bool:
    """Whether augmentations may make samples shorter than the plan expects."""
    return leaf.unit == "seconds" and may_be_shorter(length_changes(recipe, leaf))


def is_compared(recipe: Recipe, leaf: Leaf) -> bool:
    """Whether the lengths of a source are compared with those of its samples; if not, they are trusted.

    Seconds need the rate of the sequence. The size of a whole sample in its file is not the length of any field. Terms,
    and the characters of a text, are counted again (recount.py); in a pack, terms also give the length of the sequence.
    """
    length = leaf.source.length
    if recipe.sequence is None or length is None or (length.by_terms and not _is_packed(recipe, leaf)):
        return False
    if length.turns is not None:
        found = template_of(recipe, leaf)
        return length.turns == "all" and found is not None and found[0].expand_placeholders
    if length.unit == "seconds":
        return recipe.sequence_rate is not None
    if length.unit == "characters":
        return False
    return length.unit != "bytes" or length.field is not None or length.function is not None


def _is_packed(recipe: Recipe, leaf: Leaf) -> bool:
    return isinstance(leaf.batching, Pack) and recipe.collate == "pad"


def actual_length(sample: Sample, recipe: Recipe, leaf: Leaf) -> int | None:
    """The length of a mapped sample in the plan's units; None if its sequence field is missing or has no length."""
    size = _sequence_size(sample, recipe)
    if size is None or leaf.unit != "seconds":
        return size
    return None if recipe.sequence_rate is None else _in_milliseconds(size, recipe)


def _in_milliseconds(size: int, recipe: Recipe) -> int:
    assert recipe.sequence_rate is not None
    return ceil_div(size * 1000, round(recipe.sequence_rate))


def truncated(sample: Sample, recipe: Recipe, leaf: Leaf, planned: int) -> Sample:
    """The sample with its sequence, and every field aligned with it, truncated to the planned length."""
    size = _sequence_size(sample, recipe)
    if any(type(value) is MediaInTokens and value.media for value in sample.values()):
        raise LengthError(
            "a conversation with media cannot be truncated",
            found=f"{size or 0:,} tokens",
            expected=f"{planned:,}",
            fix="leave such rows out (`overlong: drop`), or give them a batch of their own (`overlong: alone`)",
        )
    keep = planned
    if leaf.unit == "seconds" and recipe.sequence_rate is not None:
        keep = planned * round(recipe.sequence_rate) // 1000
    return {name: value[:keep] if _size(value) == size else value for name, value in sample.items()}


def cut(sample: Sample, recipe: Recipe, leaf: Leaf, planned: int) -> Sample:
    """The sample, not longer than planned where its sequence field has a length."""
    found = actual_length(sample, recipe, leaf)
    return sample if found is None or found <= planned else truncated(sample, recipe, leaf, planned)


def _sequence_size(sample: Sample, recipe: Recipe) -> int | None:
    return None if recipe.sequence is None else _size(sample.get(recipe.sequence))


def _size(value: Any) -> int | None:
    if isinstance(value, list | tuple | bytes):
        return len(value)
    shape = getattr(value, "shape", None)  # arrays of numpy, torch or jax alike
    return int(shape[0]) if shape else None


def _cut_by_plan(leaf: Leaf, table: Table, row: int, planned: int) -> bool:
    if leaf.batching.overlong != "truncate" or planned != leaf.limit:
        return False
    return int(table.lengths_of(np.array([row]))[0]) > planned


def _without_length(sample: Sample, planned: int, recipe: Recipe, leaf: Leaf) -> SampleError:
    name = recipe.sequence or ""
    packs = _is_packed(recipe, leaf)
    as_long = [f"`sequence: {other}`" for other, value in sample.items() if _size(value) == planned]
    named = " or ".join(as_long[:3]) or "`sequence: <field>`"
    fix = f"name the field that lengths count ({named}), or make it in `map`"
    if name in sample:
        problem, found = f'field "{name}" has no length', f"a value of type {type(sample[name]).__name__}"
    else:
        problem = f'the sample has no field "{name}" {"to pack" if packs else "to compare its length with the plan"}'
        found = f"fields: {', '.join(map(str, sample)) or 'none'}"
    return SampleError(
        problem,
        found=found,
        expected=f'an array, a list or bytes in field "{name}"',
        fix=fix if packs else f"{fix}; or set `sequence: null`, which trusts the lengths",
    )


def _mismatch(recipe: Recipe, leaf: Leaf, planned: int, found: int) -> LengthError:
    fix = (
        "measure true lengths (`length: {measure: true}` and `playhead prepare --measure`), "
        "or set `on_length_mismatch: truncate` or `substitute`"
    )
    if holds_conversations(leaf.source) and template_of(recipe, leaf) is not None and map_of(recipe, leaf) is None:
        fix = (
            "run `playhead prepare --force` if its media changed since they were indexed, "
            "or set `on_length_mismatch: substitute`"
        )
    return LengthError(
        f'the sample is not as long as planned: field "{recipe.sequence}"',
        found=readable(found, leaf.unit),
        expected=f"{readable(planned, leaf.unit)}, its length in the index",
        fix=fix,
    )
