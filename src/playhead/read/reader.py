"""The samples of a micro-batch, in order, whatever shards they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, PlayheadError, SampleError
from playhead.formats.contract import Format, Sample
from playhead.formats.registry import format_of
from playhead.index.table import Table
from playhead.order.picks import Picks
from playhead.read.decode import decoded, decoded_until
from playhead.read.faults import Incident, candidates, placed
from playhead.read.generator import SampleGenerator
from playhead.read.length import LengthError, all_as_planned, check_length, cut
from playhead.read.mapping import Mapper
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import Leaf, map_of, sample_key
from playhead.recipe.values import Recipe
from playhead.store import OpenFiles, Stamp
from playhead.types import IntArray


class Request(Struct, frozen=True):
    """A micro-batch to read: picks of one sub-stream, and their lengths as planned.

    `known` says what stood in for a position the last time (None: nothing did), so that a replay is identical.
    """

    stream: int
    picks: Picks
    lengths: IntArray | None
    step: int = 0
    lane: int = 0
    known: Mapping[int, int | None] | None = None


@dataclass(frozen=True)
class _Source:
    """A source, ready to read."""

    leaf: Leaf
    table: Table
    format: Format
    decodes: bool
    mapper: Mapper | None
    key: int

    @property
    def name(self) -> str:
        return self.leaf.source.name


class _Made(NamedTuple):
    """The samples of a source made at once: what was read (nothing, if that failed), and what became of it."""

    raws: list[Sample]
    samples: list[Sample]
    problem: PlayheadError | None


class Reader:
    """Reads requests. It keeps files open and remembers nothing: what it gives depends on the request alone.

    `streams` are the sources of each sub-stream in the plan's order.
    """

    def __init__(
        self,
        recipe: Recipe,
        streams: list[list[tuple[Leaf, Table]]],
        map_function: Callable[..., Any] | None = None,
    ) -> None:
        self._recipe = recipe
        self._streams = [[_ready(recipe, leaf, table, map_function) for leaf, table in found] for found in streams]
        self._files = OpenFiles(_stamps(source.table for found in self._streams for source in found).get)

    def read(self, request: Request) -> tuple[list[Sample | None], list[Incident]]:
        """The samples in order (None: an empty slot), and what was replaced on the way."""
        samples: list[Sample | None] = [None] * len(request.picks)
        incidents: list[Incident] = []
        lengths = None if request.lengths is None else request.lengths.tolist()
        for number, positions in _by_source(request.picks.source).items():
            source = self._streams[request.stream][number]
            made = self._made_together(request, source, positions)
            planned = None if lengths is None else [lengths[position] for position in positions]
            if self._all_as_planned(source, made, len(positions), planned):
                for position, sample in zip(positions, made.samples, strict=True):
                    samples[position] = sample
            else:
                self._one_by_one(request, source, positions, made, samples, incidents)
        return samples, incidents

    def filler(self, request: Request) -> Sample:
        """A sample of the right make for a micro-batch of which every slot is empty: the shortest that can be read."""
        epoch, row, planned = _wanted(request, 0)
        source = self._streams[request.stream][int(request.picks.source[0])]
        rows = candidates(source.key, epoch, row, source.table.num_rows)
        reason = None
        for candidate in reversed(_by_length(source.table, rows, None)):
            try:
                own = _own_length(source, candidate, planned)
                sample = self._sample(source, epoch, candidate, own, None)
                return sample if planned is None else cut(sample, self._recipe, source.leaf, planned)
            except (SampleError, DataError) as error:
                reason = error.problem
        raise DataError(
            f'source "{source.name}", row {row:,}: no sample of the micro-batch can be read, and none of '
            f"{len(rows)} others",
            found=f"the last: {reason}",
            fix="look at the quarantine files under `cache_dir`, and fix the data, the map or the recipe",
        )

    def _made_together(self, request: Request, source: _Source, positions: list[int]) -> _Made:
        """The samples of a source read, decoded and mapped, up to the first that fails.

        Where a sample was replaced the last time, or reading all at once fails, none is made: read one by one, the
        good are told from the bad.
        """
        rows = request.picks.row[positions]
        if request.known and not request.known.keys().isdisjoint(positions):
            return _Made([], [], None)
        try:
            raws = self._raw(source, rows)
        except PlayheadError:
            return _Made([], [], None)
        if len(raws) != len(rows):
            return _Made([], [], None)
        samples, problem = decoded_until(raws) if source.decodes else (raws, None)
        if source.mapper is not None:
            epochs = request.picks.epoch[positions[: len(samples)]].tolist()
            generators = map(SampleGenerator, repeat(source.key), epochs, rows.tolist())
            mapped, failed = source.mapper.run(samples, generators)
            samples, problem = mapped, failed or problem
        return _Made(raws, samples, problem)

    def _all_as_planned(self, source: _Source, made: _Made, count: int, planned: list[int] | None) -> bool:
        """Whether every sample was made and none needs a further look."""
        if made.problem is not None or len(made.samples) != count:
            return False
        return planned is None or all_as_planned(made.samples, planned, self._recipe, source.leaf)

    def _one_by_one(
        self,
        request: Request,
        source: _Source,
        positions: list[int],
        made: _Made,
        samples: list[Sample | None],
        incidents: list[Incident],
    ) -> None:
        """Check the samples of a source that were made, make the others, and replace those that fail."""
        known = request.known or {}
        outcomes: list[Sample | PlayheadError] = [*made.samples, *([] if made.problem is None else [made.problem])]
        for i, position in enumerate(positions):
            epoch, row, planned = _wanted(request, position)
            if position in known:
                samples[position] = self._again(source, epoch, known[position], planned)
                continue
            try:
                if i < len(outcomes):
                    samples[position] = self._checked(source, row, planned, outcomes[i])
                else:
                    samples[position] = self._sample(source, epoch, row, planned, made.raws[i] if made.raws else None)
            except PlayheadError as error:
                if not self._replaces(error):
                    raise
                samples[position], substitute = self._substitute(source, epoch, row, planned)
                found = (source.name, epoch, row, substitute, str(error), request.step, request.lane)
                incidents.append(Incident(*found))

    def _replaces(self, error: PlayheadError) -> bool:
        """Whether the recipe wants another sample in place of one that failed like this; not if it is not at fault."""
        if not isinstance(error, SampleError | DataError):
            return False
        policy = self._recipe.on_length_mismatch if isinstance(error, LengthError) else self._recipe.on_error
        return policy == "substitute"

    def _again(self, source: _Source, epoch: int, substitute: int | None, planned: int | None) -> Sample | None:
        """What stood in for a pick the last time."""
        if substitute is None:
            return None
        return self._sample(source, epoch, substitute, _own_length(source, substitute, planned), None)

    def _substitute(
        self, source: _Source, epoch: int, row: int, planned: int | None
    ) -> tuple[Sample | None, int | None]:
        """The longest good candidate that is not longer than planned, and its row."""
        for candidate in _by_length(source.table, candidates(source.key, epoch, row, source.table.num_rows), planned):
            if candidate == row:
                continue
            with suppress(SampleError, DataError):
                own = _own_length(source, candidate, planned)
                return self._sample(source, epoch, candidate, own, None), candidate
        return None, None

    def _raw(self, source: _Source, rows: IntArray) -> list[Sample]:
        located = source.table.locate(rows, self._files)
        raws = source.format.read(located, source.leaf.source.options)
        return raws if isinstance(raws, list) else [*raws]

    def _one(self, source: _Source, row: int) -> Sample:
        raws = self._raw(source, np.array([row]))
        if len(raws) != 1:
            raise DataError("the bytes of the row hold another number of samples", found=f"{len(raws):,}")
        return raws[0]

    def _sample(self, source: _Source, epoch: int, row: int, planned: int | None, raw: Sample | None) -> Sample:
        """A sample read (where `raw` is None), decoded, mapped and checked; errors are told with its place."""
        try:
            if raw is None:
                raw = self._one(source, row)
            sample = decoded(raw) if source.decodes else raw
            if source.mapper is not None:
                sample = source.mapper(sample, SampleGenerator(source.key, epoch, row))
        except (SampleError, DataError) as error:
            return self._checked(source, row, planned, error)
        return self._checked(source, row, planned, sample)

    def _checked(self, source: _Source, row: int, planned: int | None, made: Sample | PlayheadError) -> Sample:
        """A sample as long as planned; what went wrong with it is told with its place."""
        try:
            if isinstance(made, PlayheadError):
                raise made from made.__cause__
            if planned is None:
                return made
            return check_length(made, planned, self._recipe, source.leaf, source.table, row)
        except (SampleError, DataError) as error:
            raise placed(error, source.name, f"row {row:,}", source.table.place(row)) from error.__cause__


def _by_source(sources: IntArray) -> dict[int, list[int]]:
    """The positions of each source that is there."""
    found: dict[int, list[int]] = {}
    for position, source in enumerate(sources.tolist()):
        found.setdefault(source, []).append(position)
    return found


def _wanted(request: Request, position: int) -> tuple[int, int, int | None]:
    """Epoch, row and planned length of a position."""
    planned = None if request.lengths is None else int(request.lengths[position])
    return int(request.picks.epoch[position]), int(request.picks.row[position]), planned


def _ready(recipe: Recipe, leaf: Leaf, table: Table, given: Callable[..., Any] | None) -> _Source:
    named = map_of(recipe, leaf)
    # A function given in place of the recipe's map does not replace a source's own.
    function = given if named is None or (given is not None and leaf.source.map is None) else resolve_function(*named)
    mapper = None if function is None else Mapper(function)
    found = format_of(leaf.source, leaf.path)
    return _Source(leaf, table, found.format, recipe.decode and found.raw_members, mapper, sample_key(recipe, leaf))


def _stamps(tables: Iterable[Table]) -> dict[str, Stamp]:
    """What every file was when it was indexed."""
    return {file.path: file.stamp for table in tables for entry in table.index.meta.shards for file in entry.files}


def _by_length(table: Table, rows: IntArray, planned: int | None) -> list[int]:
    """Candidates not longer than planned, the longest first; as they are where there are no lengths."""
    if table.histogram is None:
        return [int(row) for row in rows]
    lengths = table.lengths_of(rows).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    return [int(rows[i]) for i in order if planned is None or lengths[i] <= planned]


def _own_length(source: _Source, row: int, planned: int | None) -> int | None:
    if planned is None or source.table.histogram is None:
        return planned
    return int(source.table.lengths_of(np.array([row]))[0])
