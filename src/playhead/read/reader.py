"""The samples of a micro-batch, in order, whatever shards they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, PlayheadError, SampleError, StoreError
from playhead.formats.rows import Fetch, Sample
from playhead.index.table import Table
from playhead.order.picks import Picks
from playhead.read.augment import Augmenter
from playhead.read.decode_threads import DecodeThreads
from playhead.read.generator import SampleGenerator
from playhead.read.length import LengthError, all_as_planned, check_length, cut
from playhead.read.media import NOTHING_FETCHED, FetchedMedia
from playhead.read.noises import NoiseSource
from playhead.read.recount import Counted
from playhead.read.row_decoder import RowDecoder, may_name_remote
from playhead.read.samples import NONE, Maker, NewMaker, SampleMaker
from playhead.read.substitutes import Incident, Wanted, own_length, shortest, substitute
from playhead.recipe.storage import files_of
from playhead.recipe.tree import Leaf, augment_keys, augments_of, sample_key
from playhead.recipe.values import Recipe
from playhead.store import Files, num_costly
from playhead.types import IntArray


class Request(Struct, frozen=True):
    """A micro-batch to read: picks of one sub-stream, and their lengths as planned.

    `known` are the rows that replaced samples last time, by position (None: an empty slot): a replay is identical.
    """

    stream: int
    picks: Picks
    lengths: IntArray | None
    step: int = 0
    lane: int = 0
    known: Mapping[int, int | None] | None = None

    def wanted(self, position: int) -> Wanted:
        planned = None if self.lengths is None else int(self.lengths[position])
        return Wanted(int(self.picks.epoch[position]), int(self.picks.row[position]), planned)


@dataclass(frozen=True)
class _Source:
    """A source, ready to read."""

    leaf: Leaf
    table: Table
    maker: Maker
    fetch: Fetch
    key: int
    looks_ahead: bool  # whether reading it takes round trips

    def raw(self, rows: IntArray) -> list[Sample]:
        return self.maker.raw(self.table.locate(rows, self.fetch))


class _SourceSamples(NamedTuple):
    """The samples of a source made together: the raw samples (none if reading failed), and the results."""

    raws: list[Sample]
    samples: list[Sample]
    problem: PlayheadError | None
    counted: Counted | None = None


class FetchedRows(NamedTuple):
    """The raw samples of a source and the remote media that they name; or the error that reading them ended with."""

    raws: list[Sample]
    media: FetchedMedia
    problem: PlayheadError | None = None


Fetched = Mapping[int, FetchedRows]  # by the number of the source in its sub-stream
NONE_FETCHED: Fetched = MappingProxyType({})


class Reader:
    """Reads requests. It keeps files open and has no other state: the result depends only on the request.

    `streams` are the sources of each sub-stream in the plan's order, `noises` those that augmentations draw on.
    `stored_arrays` lets samples that no map has seen hold arrays which are not read yet. `tokenizers` are the digests
    of the tokenizers that are needed, by path. `new_maker` replaces the usual way to make samples of rows.
    `decode_threads` decode the media of a request together.
    """

    def __init__(
        self,
        recipe: Recipe,
        streams: Sequence[Sequence[tuple[Leaf, Table]]],
        map_function: Callable[..., Any] | None = None,
        files: Files | None = None,
        *,
        noises: Sequence[tuple[Leaf, Table]] = (),
        stored_arrays: bool = False,
        tokenizers: Mapping[str, str] = NONE,
        new_maker: NewMaker | None = None,
        decode_threads: int = 0,
    ) -> None:
        self._recipe = recipe
        threads = DecodeThreads(decode_threads)
        files = files_of(recipe, "refuse", files, cached=True)
        opened = {
            leaf.source.name: NoiseSource(table, RowDecoder(recipe, leaf, files), Fetch(files, table.index.stamps))
            for leaf, table in noises
        }

        def maker(leaf: Leaf) -> Maker:
            if new_maker is not None:
                return new_maker(recipe, leaf, files)
            augments = augments_of(recipe, leaf)
            augmenter = Augmenter(augments, augment_keys(recipe, leaf), opened) if augments else None
            return SampleMaker(
                recipe,
                leaf,
                files,
                map_function,
                stored_arrays=stored_arrays,
                augmenter=augmenter,
                tokenizers=tokenizers,
                threads=threads,
            )

        def source(leaf: Leaf, table: Table) -> _Source:
            fetch = Fetch(files, table.index.stamps)
            looks_ahead = may_name_remote(recipe, leaf, files) or num_costly(files, fetch.stamps) > 0
            return _Source(leaf, table, maker(leaf), fetch, sample_key(recipe, leaf), looks_ahead)

        self._streams = [[source(*found) for found in stream] for stream in streams]

    @property
    def looks_ahead(self) -> bool:
        """Whether `fetch` ever fetches anything: not where all files are on disks."""
        return any(source.looks_ahead for stream in self._streams for source in stream)

    def fetch(self, request: Request) -> Fetched:
        """The bytes that `read` will need, where requests take a round trip; other threads may read meanwhile.

        Law: `read` returns and raises the same with them and without. Errors of the rows or the storage are kept for
        it; bad samples are replaced by `read`, one by one.
        """
        found: dict[int, FetchedRows] = {}
        for number, positions in _by_source(request.picks.source).items():
            source = self._streams[request.stream][number]
            if source.looks_ahead and not _was_replaced(request, positions):
                found[number] = _fetched_together(request, source, positions)
        return found

    def read(self, request: Request, fetched: Fetched = NONE_FETCHED) -> tuple[list[Sample | None], list[Incident]]:
        """The samples in order (None: an empty slot), and the samples that were replaced.

        What was `fetched` of the request is not read again.
        """
        samples: list[Sample | None] = [None] * len(request.picks)
        incidents: list[Incident] = []
        lengths = None if request.lengths is None else request.lengths.tolist()
        for number, positions in _by_source(request.picks.source).items():
            source = self._streams[request.stream][number]
            made = _made_together(request, source, positions, fetched.get(number))
            alone = len(positions) == len(samples)
            planned = lengths if lengths is None or alone else [lengths[position] for position in positions]
            if not self._all_as_planned(source, made, len(positions), planned):
                self._one_by_one(request, source, positions, made, samples, incidents)
            elif alone:
                samples[:] = made.samples
            else:
                for position, sample in zip(positions, made.samples, strict=True):
                    samples[position] = sample
        return samples, incidents

    def filler(self, request: Request) -> Sample:
        """A stand-in sample for a micro-batch whose slots are all empty: the shortest that can be read."""
        wanted = request.wanted(0)
        source = self._streams[request.stream][int(request.picks.source[0])]
        sample = shortest(source.table, source.key, wanted, partial(self._sample, source, wanted.epoch))
        return sample if wanted.planned is None else cut(sample, self._recipe, source.leaf, wanted.planned)

    def _all_as_planned(self, source: _Source, made: _SourceSamples, count: int, planned: list[int] | None) -> bool:
        """Whether every sample was made and none needs a further check."""
        if made.problem is not None or len(made.samples) != count:
            return False
        if planned is None:
            return True
        terms = source.maker.recount
        if terms is not None and made.counted is not None and not terms.all_as_planned(made.counted, planned):
            return False
        return all_as_planned(made.samples, planned, self._recipe, source.leaf)

    def _one_by_one(
        self,
        request: Request,
        source: _Source,
        positions: Sequence[int],
        made: _SourceSamples,
        samples: list[Sample | None],
        incidents: list[Incident],
    ) -> None:
        """Check the samples of a source that were made, make the others, and replace those that fail."""
        known = request.known or {}
        outcomes: list[Sample | PlayheadError] = [
            _as_counted(source, sample, made.counted, j, request.wanted(positions[j]).planned)
            for j, sample in enumerate(made.samples)
        ]
        outcomes += [] if made.problem is None else [made.problem]
        for i, position in enumerate(positions):
            wanted = request.wanted(position)
            make = partial(self._sample, source, wanted.epoch)
            if position in known:
                row = known[position]
                if row is not None:
                    samples[position] = make(row, own_length(source.table, row, wanted.planned))
                continue
            try:
                if i < len(outcomes):
                    samples[position] = self._checked(source, wanted.row, wanted.planned, outcomes[i])
                else:
                    samples[position] = make(wanted.row, wanted.planned, made.raws[i] if made.raws else None)
            except PlayheadError as error:
                if not self._replaces(error):
                    raise
                samples[position], row = substitute(source.table, source.key, wanted, make)
                found = (source.table.name, wanted.epoch, wanted.row, row, str(error), request.step, request.lane)
                incidents.append(Incident(*found))

    def _replaces(self, error: PlayheadError) -> bool:
        """Whether the recipe replaces a sample that failed with this error."""
        if not isinstance(error, SampleError | DataError):
            return False
        policy = self._recipe.on_length_mismatch if isinstance(error, LengthError) else self._recipe.on_error
        return policy == "substitute"

    def _sample(self, source: _Source, epoch: int, row: int, planned: int | None, raw: Sample | None = None) -> Sample:
        """A sample read (where `raw` is None), made and checked."""
        try:
            raws = source.raw(np.array([row])) if raw is None else [raw]
            made = source.maker.make(raws, [SampleGenerator(source.key, epoch, row)])
        except (SampleError, DataError) as error:
            return self._checked(source, row, planned, error)
        found = made.problem or _as_counted(source, made.samples[0], made.counted, 0, planned)
        return self._checked(source, row, planned, found)

    def _checked(self, source: _Source, row: int, planned: int | None, made: Sample | PlayheadError) -> Sample:
        """A sample of the planned length; an error names its location."""
        try:
            if isinstance(made, PlayheadError):
                raise made
            if planned is None:
                return made
            return check_length(made, planned, self._recipe, source.leaf, source.table, row)
        except (SampleError, DataError) as error:
            error.at_row(f'source "{source.table.name}", row {row:,}', source.table.place(row))
            raise


def _was_replaced(request: Request, positions: Sequence[int]) -> bool:
    """Whether one of the samples was replaced last time: they are then read one by one."""
    return bool(request.known) and not (request.known or {}).keys().isdisjoint(positions)


def _fetched_together(request: Request, source: _Source, positions: Sequence[int]) -> FetchedRows:
    try:
        raws = source.raw(_at(request.picks.row, positions))
    except (StoreError, SampleError, DataError) as error:
        return FetchedRows([], NOTHING_FETCHED, error)
    try:
        return FetchedRows(raws, source.maker.fetch(raws, _generators(request, source.key, positions)))
    except PlayheadError:  # of a row: making the samples finds it again, and knows whose it is
        return FetchedRows(raws, NOTHING_FETCHED)


def _made_together(
    request: Request, source: _Source, positions: Sequence[int], fetched: FetchedRows | None
) -> _SourceSamples:
    """The samples of a source read and made at once, up to the first that fails.

    If a sample was replaced last time, or reading all together fails, none is made: they are then read one by one, to
    find the bad ones.
    """
    if _was_replaced(request, positions):
        return _SourceSamples([], [], None)
    try:
        if fetched is None:
            fetched = FetchedRows(source.raw(_at(request.picks.row, positions)), NOTHING_FETCHED)
        elif fetched.problem is not None:
            raise fetched.problem
    except (SampleError, DataError):
        return _SourceSamples([], [], None)
    generators = _generators(request, source.key, positions)
    return _SourceSamples(fetched.raws, *source.maker.make(fetched.raws, generators, fetched.media))


def _as_counted(
    source: _Source, sample: Sample, counted: Counted | None, i: int, planned: int | None
) -> Sample | PlayheadError:
    """The sample, or the error if its length counted by terms is wrong."""
    if counted is None or planned is None or source.maker.recount is None:
        return sample
    return source.maker.recount.mismatch(counted[i], planned) or sample


def _generators(request: Request, key: int, positions: Sequence[int]) -> Iterator[SampleGenerator]:
    """Generators, made on demand: most maps take none."""
    picks = request.picks
    epochs, rows = _at(picks.epoch, positions).tolist(), _at(picks.row, positions).tolist()
    yield from map(SampleGenerator, repeat(key), epochs, rows)


def _by_source(sources: IntArray) -> dict[int, Sequence[int]]:
    """The positions of each source in the picks, in order of first occurrence; a range if there is only one source."""
    numbers = sources.tolist()
    if len({*numbers}) == 1:
        return {numbers[0]: range(len(numbers))}
    found: dict[int, list[int]] = {number: [] for number in numbers}
    for position, number in enumerate(numbers):
        found[number].append(position)
    return {**found}


def _at(values: IntArray, positions: Sequence[int]) -> IntArray:
    """The values at the positions of a source; a range is all of them."""
    return values if isinstance(positions, range) else values[positions]
