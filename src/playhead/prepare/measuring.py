"""Measuring: the lengths of samples made as a loader would make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from playhead.errors import DataError, SampleError
from playhead.formats.row_lengths import RowLengths
from playhead.formats.rows import Rows, Sample
from playhead.formats.spec import Spec
from playhead.index.layout import Layout, tokenizer_digests
from playhead.prepare.stretches import Stretch, batches, write_lengths
from playhead.read.generator import SampleGenerator
from playhead.read.headers import UndecodedRow
from playhead.read.length import actual_length
from playhead.read.mapping import takes_generator
from playhead.read.row_decoder import RowDecoder
from playhead.read.samples import SampleMaker, map_function
from playhead.recipe.augment_lengths import changed_milliseconds
from playhead.recipe.tree import Leaf, length_changes
from playhead.recipe.units import LARGEST_LENGTH
from playhead.recipe.values import Recipe
from playhead.store import Files

_ROWS_AT_ONCE = 256
_EPOCH = 0


class RowMeter(Protocol):
    """Measures the rows of a stretch. It is sent to workers."""

    @property
    def generator_key(self) -> int | None: ...

    def lengths(self, stretch: Stretch) -> list[int]: ...


@dataclass(frozen=True)
class HeaderMeter:
    """Lengths of rows from their fields and, where these are not enough, from the headers of their media.

    Its recipe has no other source. Law: no map is run, and only headers and small members are decoded.
    """

    leaf: Leaf
    recipe: Recipe
    files: Files
    spec: Spec
    batch_bytes: int
    generator_key: None = None

    def lengths(self, stretch: Stretch) -> list[int]:
        """The length of each row; a row without one raises an error with its number and location."""
        decoder = RowDecoder(self.recipe, self.leaf, self.files)
        fetch = stretch.fetch(self.files)
        assert self.spec.length is not None
        found: list[int] = []
        counted = RowLengths(self.spec.length, self.spec.audio_changes, self.spec.tokenizers, self.spec.chat)
        for low, high in batches(stretch, self.batch_bytes, _ROWS_AT_ONCE):
            rows = stretch.rows(low, high, fetch)
            for i, sample in enumerate(decoder.undecoded(decoder.raw(rows))):
                name = f'source "{self.leaf.source.name}", raw row {stretch.raw_row + low + i:,}'
                try:
                    row = UndecodedRow(sample, self.files, decoder.rules, decoder.image)
                    counted.add(row, f"{name} ({rows.place(i)})")
                except (SampleError, DataError) as error:
                    error.at_row(name, rows.place(i))
                    raise
            found += counted.take().tolist()
        return found


@dataclass(frozen=True)
class LengthMeter:
    """Measures the samples of a source after the map. It is sent to workers: its recipe has no other source.

    `generator_key` is None if the map takes no generator, so that lengths are the same for every seed. `tokenizers`
    are digests by path.
    """

    leaf: Leaf
    recipe: Recipe
    files: Files
    generator_key: int | None
    batch_bytes: int
    tokenizers: Mapping[str, str]

    def lengths(self, stretch: Stretch) -> list[int]:
        """The length of each row; a sample without one, or that cannot be made, raises an error with its row."""
        maker = SampleMaker(self.recipe, self.leaf, self.files, tokenizers=self.tokenizers)
        fetch = stretch.fetch(self.files)
        found: list[int] = []
        for low, high in batches(stretch, self.batch_bytes, _ROWS_AT_ONCE):
            found += self._batch(maker, stretch.rows(low, high, fetch), stretch.raw_row + low)
        return found

    def _batch(self, maker: SampleMaker, rows: Rows, first: int) -> list[int]:
        raws = maker.raw(rows)
        generators = (SampleGenerator(self.generator_key or 0, _EPOCH, first + i) for i in range(len(raws)))
        samples, problem, _ = maker.make(raws, generators)
        lengths: list[int] = []
        try:
            for sample in samples:
                lengths.append(self._length(sample))  # noqa: PERF401 - how far it came says which sample is wrong
            if problem is not None:
                raise problem
        except (SampleError, DataError) as error:
            name = f'source "{self.leaf.source.name}", raw row {first + len(lengths):,}'
            error.at_row(name, rows.place(len(lengths)))
            raise
        return lengths

    def _length(self, sample: Sample) -> int:
        """Augmentations are not run: the most that they may add is added to the measured length."""
        length = actual_length(sample, self.recipe, self.leaf)
        if length is not None and self.leaf.unit == "seconds":
            length = changed_milliseconds(length, length_changes(self.recipe, self.leaf))
        if length is None or length > LARGEST_LENGTH:
            assert self.recipe.sequence is not None, "the recipe check requires one"
            raise _unmeasurable(sample, self.recipe.sequence, length)
        return length


def length_meter_of(layout: Layout, recipe: Recipe, files: Files, batch_bytes: int) -> LengthMeter:
    """The meter of a source. Its map is resolved here first, so that a missing one is reported once."""
    function = map_function(recipe, layout.leaf)
    drawn = function is not None and takes_generator(function)
    alone = msgspec.structs.replace(recipe, sources=[layout.leaf.source], evaluation={})
    key = layout.generator_key if drawn else None
    return LengthMeter(layout.leaf, alone, files, key, batch_bytes, tokenizer_digests(recipe, layout.leaf))


def header_meter_of(layout: Layout, recipe: Recipe, files: Files, batch_bytes: int) -> HeaderMeter:
    alone = msgspec.structs.replace(recipe, sources=[layout.leaf.source], evaluation={}, map=None, tokenize=None)
    return HeaderMeter(layout.leaf, alone, files, layout.spec, batch_bytes)


@dataclass(frozen=True)
class MeasureJob:
    """One stretch to measure."""

    meter: RowMeter
    stretch: Stretch
    path: Path

    @property
    def name(self) -> str:
        return self.stretch.name

    def run(self) -> None:
        write_lengths(self.path, self.meter.lengths(self.stretch))


def _unmeasurable(sample: Sample, sequence: str, length: int | None) -> SampleError:
    if length is not None:
        return SampleError(
            f'field "{sequence}" is too long', found=f"{length:,}", expected=f"at most {LARGEST_LENGTH:,}"
        )
    if sequence not in sample:
        return SampleError(
            f'the sample has no field "{sequence}" to measure',
            found=f"fields: {', '.join(map(str, sample)) or 'none'}",
            fix="add it in `map`, or name another with `sequence: <field>`",
        )
    return SampleError(
        f'field "{sequence}" has no length',
        found=f"a value of type {type(sample[sequence]).__name__}",
        expected="an array, a list or bytes",
        fix="convert it in `map`, or name another with `sequence: <field>`",
    )
