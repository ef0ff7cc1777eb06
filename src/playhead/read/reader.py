"""The samples of a micro-batch, in order, whatever shards they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from playhead.errors import PlayheadError, SampleError
from playhead.formats.contract import Format, Sample
from playhead.formats.registry import format_of
from playhead.index.table import Table
from playhead.order.picks import Picks
from playhead.read.decode import decoded
from playhead.read.faults import Faults, Incident, candidates
from playhead.read.generator import SampleGenerator
from playhead.read.length import check_length
from playhead.read.mapping import Mapper, mapper_of
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import Leaf
from playhead.recipe.values import Recipe
from playhead.seeds import key
from playhead.store import OpenFiles
from playhead.types import IntArray


@dataclass(frozen=True)
class Request:
    """A micro-batch to read: picks of one sub-stream, and their lengths as planned."""

    stream: int
    picks: Picks
    lengths: IntArray | None
    step: int = 0
    lane: int = 0


@dataclass(frozen=True)
class _Source:
    """A source, ready to read."""

    leaf: Leaf
    table: Table
    format: Format
    mapper: Mapper | None
    files: OpenFiles
    key: int


class Reader:
    """Reads requests. It keeps files open and remembers what it found to be bad, nothing else.

    `streams` are the sources of each sub-stream in the plan's order.
    """

    def __init__(
        self,
        recipe: Recipe,
        streams: list[list[tuple[Leaf, Table]]],
        map_function: Callable[..., Any] | None = None,
        known: Faults | None = None,
    ) -> None:
        self._recipe = recipe
        self._streams = [[_ready(recipe, leaf, table, map_function) for leaf, table in found] for found in streams]
        self._faults = known or Faults()

    def read(self, request: Request) -> tuple[list[Sample | None], list[Incident]]:
        """The samples in order (None: an empty slot), and what was replaced on the way."""
        samples: list[Sample | None] = [None] * len(request.picks)
        incidents: list[Incident] = []
        for number, source in enumerate(self._streams[request.stream]):
            (positions,) = np.nonzero(request.picks.source == number)
            if not len(positions):
                continue
            rows, epochs = request.picks.row[positions], request.picks.epoch[positions]
            lengths = None if request.lengths is None else request.lengths[positions].tolist()
            found = self._samples(source, epochs.tolist(), rows, lengths)
            for position, (sample, incident) in zip(positions.tolist(), found, strict=True):
                samples[position] = sample
                if incident is not None:
                    self._faults.add(incident)
                    named = (incident.source, incident.epoch, incident.row, incident.substitute, incident.reason)
                    incidents.append(Incident(*named, request.step, request.lane))
        return samples, incidents

    def _samples(
        self, source: _Source, epochs: list[int], rows: IntArray, lengths: list[int] | None
    ) -> Iterator[tuple[Sample | None, Incident | None]]:
        """Each sample, read together where all is well, else one by one to tell the good from the bad."""
        planned: list[int | None] = [None] * len(epochs) if lengths is None else [*lengths]
        if self._recipe.on_error == "raise":
            for i, raw in enumerate(self._raw(source, rows)):
                yield self._finished(source, raw, epochs[i], int(rows[i]), planned[i]), None
            return
        suspect = bool(self._faults.quarantined)
        together: list[Sample | None] = [None] * len(rows)
        if not suspect:
            with suppress(PlayheadError):
                together = [*self._raw(source, rows)]
        for i in range(len(rows)):
            yield self._or_substitute(source, together[i], epochs[i], int(rows[i]), planned[i])

    def _or_substitute(
        self, source: _Source, raw: Sample | None, epoch: int, row: int, planned: int | None
    ) -> tuple[Sample | None, Incident | None]:
        name = source.leaf.source.name
        if (name, epoch, row) in self._faults.replaced:
            return self._again(source, epoch, row, planned), None
        try:
            if self._faults.is_bad(name, epoch, row):
                raise SampleError("quarantined before")
            if raw is None:
                (raw,) = self._raw(source, np.array([row]))
            return self._finished(source, raw, epoch, row, planned), None
        except PlayheadError as error:
            return self._substitute(source, epoch, row, planned, str(error))

    def _again(self, source: _Source, epoch: int, row: int, planned: int | None) -> Sample | None:
        """What stood in for a pick the last time."""
        substitute = self._faults.replaced[source.leaf.source.name, epoch, row]
        if substitute is None:
            return None
        (raw,) = self._raw(source, np.array([substitute]))
        return self._finished(source, raw, epoch, substitute, _own_length(source, substitute, planned))

    def _substitute(
        self, source: _Source, epoch: int, row: int, planned: int | None, reason: str
    ) -> tuple[Sample | None, Incident]:
        """The longest good candidate that is not longer than planned."""
        name, table = source.leaf.source.name, source.table
        for candidate in _by_length(table, candidates(source.key, epoch, row, table.num_rows), planned):
            if candidate == row or self._faults.is_bad(name, epoch, candidate):
                continue
            try:
                (raw,) = self._raw(source, np.array([candidate]))
                sample = self._finished(source, raw, epoch, candidate, _own_length(source, candidate, planned))
            except PlayheadError:
                continue
            return sample, Incident(name, epoch, row, candidate, reason)
        return None, Incident(name, epoch, row, None, reason)

    def _raw(self, source: _Source, rows: IntArray) -> Iterator[Sample]:
        located = source.table.locate(rows, source.files)
        yield from source.format.read(located, source.leaf.source.options)

    def _finished(self, source: _Source, raw: Sample, epoch: int, row: int, planned: int | None) -> Sample:
        """A raw sample decoded, mapped and checked; what goes wrong is told with the sample's place."""
        try:
            sample = decoded(raw) if self._recipe.decode else raw
            if source.mapper is not None:
                sample = source.mapper(sample, SampleGenerator(source.key, epoch, row))
            if planned is not None:
                sample = check_length(sample, planned, self._recipe, source.leaf, source.table, row)
        except SampleError as error:
            raise SampleError(
                f'source "{source.leaf.source.name}", row {row:,} ({source.table.place(row)}): {error.problem}',
                found=error.found,
                expected=error.expected,
                fix=error.fix,
            ) from error.__cause__
        return sample


def _ready(recipe: Recipe, leaf: Leaf, table: Table, given: Callable[..., Any] | None) -> _Source:
    named = leaf.source.map or (recipe.map if given is None else None)
    where = f"{leaf.path}.map" if leaf.source.map else "map"
    function = resolve_function(named, where) if named is not None else given
    stamps = {file.path: file.stamp for entry in table.index.meta.shards for file in entry.files}
    return _Source(
        leaf,
        table,
        format_of(leaf.source, leaf.path).format,
        None if function is None else mapper_of(function),
        OpenFiles(stamps.get),
        key(recipe.seed, "sample", leaf.source.name),
    )


def _by_length(table: Table, rows: IntArray, planned: int | None) -> list[int]:
    """Candidates not longer than planned, the longest first; all of them where there are no lengths."""
    if planned is None or table.histogram is None:
        return [int(row) for row in rows]
    lengths = table.lengths_of(rows).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    return [int(rows[i]) for i in order if lengths[i] <= planned]


def _own_length(source: _Source, row: int, planned: int | None) -> int | None:
    if planned is None or source.table.histogram is None:
        return planned
    return int(source.table.lengths_of(np.array([row]))[0])
