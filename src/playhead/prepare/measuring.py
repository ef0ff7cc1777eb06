"""Measuring: rows read, decoded and mapped as a loader would, and how long what comes out is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from playhead.errors import DataError, SampleError
from playhead.formats.contract import Format, Rows, Sample
from playhead.index.layout import Layout
from playhead.prepare.stretches import Stretch, batches, write_lengths
from playhead.read.decode import decoded
from playhead.read.faults import placed
from playhead.read.generator import SampleGenerator
from playhead.read.length import actual_length
from playhead.read.mapping import Mapper, takes_generator
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import Leaf, map_of
from playhead.recipe.units import LARGEST_LENGTH
from playhead.recipe.values import Recipe

_ROWS_AT_ONCE = 256
_EPOCH = 0


@dataclass(frozen=True)
class LengthMeter:
    """How the samples of a source are measured. It travels to workers: the recipe in it has no other source.

    `generator_key` is None where the map takes no generator, so that lengths are the same for every seed.
    """

    format: Format
    leaf: Leaf
    recipe: Recipe
    generator_key: int | None
    batch_bytes: int

    def lengths(self, stretch: Stretch) -> list[int]:
        """The length of each row; a sample that has none, or cannot be made, raises with its row and place."""
        function = _map_function(self.recipe, self.leaf)
        mapper = None if function is None else Mapper(function)
        files = stretch.files_to_read()
        found: list[int] = []
        for low, high in batches(stretch, self.batch_bytes, _ROWS_AT_ONCE):
            found += self._batch(stretch.rows(low, high, files), stretch.raw_row + low, mapper)
        return found

    def _batch(self, rows: Rows, first: int, mapper: Mapper | None) -> Iterator[int]:
        source = self.leaf.source
        for i, raw in enumerate(self.format.read(rows, source.options)):
            try:
                yield self._length(raw, first + i, mapper)
            except (SampleError, DataError) as error:
                raise placed(error, source.name, f"raw row {first + i:,}", rows.place(i)) from error.__cause__

    def _length(self, raw: Sample, raw_row: int, mapper: Mapper | None) -> int:
        sample = decoded(raw) if self.recipe.decode else raw
        if mapper is not None:
            sample = mapper(sample, SampleGenerator(self.generator_key or 0, _EPOCH, raw_row))
        length = actual_length(sample, self.recipe, self.leaf)
        if length is None or length > LARGEST_LENGTH:
            assert self.recipe.sequence is not None, "the recipe check requires one"
            raise _unmeasurable(sample, self.recipe.sequence, length)
        return length


def length_meter_of(layout: Layout, recipe: Recipe, batch_bytes: int) -> LengthMeter:
    """How a source is measured. Its map is looked up here first, so that one that is missing is told once."""
    function = _map_function(recipe, layout.leaf)
    drawn = function is not None and takes_generator(function)
    alone = msgspec.structs.replace(recipe, sources=[layout.leaf.source], evaluation={})
    key = layout.generator_key if drawn else None
    return LengthMeter(layout.registered.format, layout.leaf, alone, key, batch_bytes)


@dataclass(frozen=True)
class MeasureJob:
    """One stretch to measure."""

    meter: LengthMeter
    stretch: Stretch
    path: Path

    @property
    def name(self) -> str:
        return self.stretch.name

    def run(self) -> None:
        write_lengths(self.path, self.meter.lengths(self.stretch))


def _map_function(recipe: Recipe, leaf: Leaf) -> Callable[..., Any] | None:
    named = map_of(recipe, leaf)
    return None if named is None else resolve_function(*named)


def _unmeasurable(sample: Sample, sequence: str, length: int | None) -> SampleError:
    if length is not None:
        return SampleError(
            f'field "{sequence}" is too long', found=f"{length:,}", expected=f"at most {LARGEST_LENGTH:,}"
        )
    if sequence not in sample:
        return SampleError(
            f'the sample has no field "{sequence}" to measure',
            found=f"fields: {', '.join(map(str, sample)) or 'none'}",
            fix="make it in `map`, or name another with `sequence: <field>`",
        )
    return SampleError(
        f'field "{sequence}" has no length',
        found=f"a value of type {type(sample[sequence]).__name__}",
        expected="an array, a list or bytes",
        fix="make it one in `map`, or name another with `sequence: <field>`",
    )
