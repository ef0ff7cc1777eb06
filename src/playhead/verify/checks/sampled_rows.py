"""A few rows of every source, read, decoded and mapped as a loader would: what is found of each, and nothing kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from playhead.errors import PlayheadError, SampleError, StoreError
from playhead.formats.lengths import MISSING
from playhead.formats.rows import Fetch, Sample
from playhead.formats.tokens import field_of, text_pieces
from playhead.index.layout import tokenizer_digests
from playhead.index.table import Table
from playhead.order.permute import permute
from playhead.plan.rules import FixedRule, planned_lengths
from playhead.read.augment import Augmenter
from playhead.read.generator import SampleGenerator
from playhead.read.length import LengthError, check_length, is_compared
from playhead.read.mapping import Mapper
from playhead.read.noises import Noises, NoiseSource
from playhead.read.row_decoder import RowDecoder
from playhead.read.samples import SampleMaker, map_function
from playhead.recipe.tree import Leaf, augment_keys, augments_of, length_changes, noises_of, sample_key, tokenize_of
from playhead.recipe.values import Recipe
from playhead.seeds import key
from playhead.store import Files
from playhead.store.copies import NoCopyError
from playhead.verify.checks.global_random import generators_drawn_from
from playhead.verify.payload import difference_in_words

_MOST_ROWS = 512  # of all sources together, but at least three of each
_FEWEST_ROWS = 3
_TEXTS = ("text", "txt", "json.text", "transcript")

Tables = Mapping[str, tuple[Leaf, Table]]


@dataclass(frozen=True)
class RowFacts:
    """A row of a source, and where it is.

    `problem` is why it cannot be read, decoded or mapped, `changed` whether its files are others than when they were
    indexed; `mismatch` how its length differs from the index, and
    `enforced` whether a loader would refuse that. `rates` are those of its audio by field, `texts` says of fields of
    text whether they hold any. `differs` is what a second run of the map gave differently, `drawn_from` are the global
    random generators that the map used.
    """

    row: int
    place: str
    problem: PlayheadError | None = None
    changed: bool = False
    mismatch: PlayheadError | None = None
    enforced: bool = True
    rates: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, bool] = field(default_factory=dict)
    differs: str | None = None
    drawn_from: tuple[str, ...] = ()


def facts_of(recipe: Recipe, tables: Tables, files: Files, most: int) -> dict[str, tuple[RowFacts, ...]]:
    """The facts of the first, the last and some other rows of each source, by its place in the recipe."""
    count = max(_FEWEST_ROWS, min(most, _MOST_ROWS // max(1, len(tables))))
    found = {}
    for path, (leaf, table) in tables.items():
        rows = chosen_rows(table.num_rows, leaf.source.name, count)
        try:
            sampler = _Sampler(recipe, leaf, table, files, _noises(recipe, leaf, tables, files))
        except PlayheadError as error:
            found[path] = tuple(RowFacts(row, table.place(row), error) for row in rows[:1])
            continue
        facts = [sampler.facts(row) for row in rows]
        found[path] = tuple(fact for fact in facts if not isinstance(fact.problem, NoCopyError))  # of other steps
    return found


def chosen_rows(num_rows: int, name: str, count: int) -> list[int]:
    """The first row, the last, and others that depend on the name alone."""
    among = permute(key("check", name), np.arange(min(count, num_rows)), num_rows).tolist()
    return sorted({0, num_rows - 1, *among[: max(0, count - 2)]})


def _noises(recipe: Recipe, leaf: Leaf, tables: Tables, files: Files) -> dict[str, NoiseSource]:
    """The sources that augmentations of a source draw on, as far as they are prepared."""
    opened = [(tables[noise.path]) for noise in noises_of(recipe, [leaf]) if noise.path in tables]
    return {
        noise.source.name: NoiseSource(table, RowDecoder(recipe, noise, files), Fetch(files, table.index.stamps))
        for noise, table in opened
    }


class _Sampler:
    """Makes samples of one source, before and after its map."""

    def __init__(self, recipe: Recipe, leaf: Leaf, table: Table, files: Files, noises: Noises) -> None:
        self._recipe, self._leaf, self._table = recipe, leaf, table
        self._fetch = Fetch(files, table.index.stamps)
        self._key = sample_key(recipe, leaf)
        augments = augments_of(recipe, leaf)
        augmenter = Augmenter(augments, augment_keys(recipe, leaf), noises) if augments else None
        unmapped = msgspec.structs.replace(leaf.source, map=None)
        self._maker = SampleMaker(
            msgspec.structs.replace(recipe, map=None),
            Leaf(leaf.path, unmapped, leaf.batching, leaf.batching_path, leaf.evaluation, leaf.is_noise),
            files,
            augmenter=augmenter,
            tokenizers=tokenizer_digests(recipe, leaf),
        )
        try:
            function = None if leaf.is_noise else map_function(recipe, leaf)
        except PlayheadError:  # a check of its own says so
            function = None
        self._mapper = None if function is None else Mapper(function)

    def facts(self, row: int) -> RowFacts:
        """What becomes of a row. Whatever goes wrong is in the facts."""
        found = RowFacts(row, self._table.place(row))
        try:
            sample, counted = self._unmapped(row)
            mismatch = self._heard(sample, row)
            found = replace(found, rates=_rates(sample), texts=self._texts(sample))
            mapped, drawn_from = self._mapped(sample, row)
            found = replace(found, differs=self._differs(mapped, row), drawn_from=drawn_from)
            self._check_length(mapped, counted, row)
        except LengthError as error:
            return replace(found, mismatch=error)
        except PlayheadError as error:
            return replace(found, problem=error, changed=isinstance(error, StoreError) and self._changed(row))
        except Exception as error:  # noqa: BLE001 - a reader of another package may raise anything
            return replace(found, problem=SampleError(f"reading the row raised {type(error).__name__}: {error}"))
        return replace(found, mismatch=mismatch, enforced=mismatch is None)

    def _unmapped(self, row: int) -> tuple[Sample, int | None]:
        """A sample before the map, and its length as its terms count it."""
        raws = self._maker.raw(self._table.locate(np.array([row]), self._fetch))
        made = self._maker.make(raws, [self._generator(row)])
        if made.problem is not None:
            raise made.problem
        return made.samples[0], None if made.counted is None else made.counted[0]

    def _changed(self, row: int) -> bool:
        """Whether a file that holds the row is another than when it was indexed."""
        (shard,) = self._table.where(row).shards
        for _, path in shard.files:
            try:
                if self._fetch.files.stamp(path) != self._fetch.stamps[path]:
                    return True
            except PlayheadError:
                return True
        return False

    def _generator(self, row: int) -> SampleGenerator:
        return SampleGenerator(self._key, 0, row)

    def _mapped(self, sample: Sample, row: int) -> tuple[Sample, tuple[str, ...]]:
        if self._mapper is None:
            return sample, ()
        with generators_drawn_from() as drawn_from:
            mapped = self._mapper(sample, self._generator(row))
        return mapped, tuple(drawn_from)

    def _differs(self, mapped: Sample, row: int) -> str | None:
        """What the map gives differently when it is run on the same row again."""
        if self._mapper is None:
            return None
        again, _ = self._unmapped(row)
        return difference_in_words(mapped, self._mapper(again, self._generator(row)))

    def _check_length(self, mapped: Sample, counted: int | None, row: int) -> None:
        if self._leaf.is_noise or self._leaf.source.length is None:
            return
        planned = self._planned(row)
        if counted is not None and self._maker.recount is not None:
            mismatch = self._maker.recount.mismatch(counted, planned)
            if mismatch is not None:
                raise mismatch
        check_length(mapped, planned, self._recipe, self._leaf, self._table, row)

    def _planned(self, row: int) -> int:
        """The length of a row as the plan counts it."""
        rule = FixedRule(1, self._leaf.limit, self._leaf.batching.overlong)
        return int(planned_lengths(rule, self._table.lengths_of(np.array([row])).astype(np.int64))[0])

    def _heard(self, sample: Sample, row: int) -> PlayheadError | None:
        """Seconds that nothing compares with the plan, compared with the audio of the row."""
        length, rates = self._leaf.source.length, _rates(sample)
        if length is None or not length.in_seconds or length.per_second or is_compared(self._recipe, self._leaf):
            return None
        if len(rates) != 1 or length_changes(self._recipe, self._leaf):
            return None
        ((name, rate),) = rates.items()
        said = int(self._table.lengths_of(np.array([row]))[0]) / 1000
        heard = len(sample[name]) / rate
        if abs(heard - said) <= self._recipe.length_tolerance:
            return None
        return LengthError(
            "the audio is not as long as the index says",
            found=f'{heard:,.2f} s in field "{name}"',
            expected=f"{said:,.2f} s",
            fix="correct the field that holds the length, or its `unit`",
        )

    def _texts(self, sample: Sample) -> dict[str, bool]:
        """Fields of text, and whether they hold any."""
        tokenize = tokenize_of(self._recipe, self._leaf)
        wanted = [] if tokenize is None else [name for _, name in text_pieces(tokenize[0]) if name is not None]
        found: dict[str, Any] = {name: field_of(sample, name) for name in (*wanted, *_TEXTS)}
        return {
            name: isinstance(value, str) and bool(value.strip())
            for name, value in found.items()
            if value is None or isinstance(value, str) or (name in wanted and value is MISSING)
        }


def _rates(sample: Sample) -> dict[str, int]:
    """The sample rate of each field of decoded audio."""
    return {
        name: int(sample[f"{name}_rate"])
        for name, value in sample.items()
        if hasattr(value, "shape") and isinstance(sample.get(f"{name}_rate"), int | np.integer)
    }
