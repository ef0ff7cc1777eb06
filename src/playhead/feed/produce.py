"""Work -> the arrays of a micro-batch. What a worker does, wherever it runs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec import Struct

from playhead.errors import PlayheadError, RecipeError, SampleError
from playhead.feed.collate import packed, padded
from playhead.feed.describe import Streams, describe
from playhead.feed.named_fields import check_named_fields
from playhead.feed.padding import Collation, Empty, Payload
from playhead.feed.payload import payload_fingerprint
from playhead.feed.stats import Timed
from playhead.feed.stopwatch import Stopwatch
from playhead.feed.tasks import Work
from playhead.formats.rows import Sample
from playhead.index.layout import tokenizer_digests
from playhead.index.table import open_tables
from playhead.read import NONE_FETCHED, Fetched, Incident, Reader, Request
from playhead.read.mapping import name_of, place_of
from playhead.read.samples import NewMaker
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import Leaf, noises_of
from playhead.recipe.values import Recipe
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import SPANS, Files, Span

UserFunction = Callable[..., Any]


class SampleReader(Protocol):
    """Gives the samples of a micro-batch: see Reader, which reads them."""

    @property
    def looks_ahead(self) -> bool: ...

    def fetch(self, request: Request) -> Fetched: ...

    def read(self, request: Request, fetched: Fetched) -> tuple[list[Sample | None], list[Incident]]: ...

    def filler(self, request: Request) -> Sample: ...


class Produced(Struct, frozen=True):
    """The arrays of a micro-batch, what went wrong with its samples, and the worker: the system's id of its thread.

    `timed` is its BatchTiming, packed; None where nothing was timed.
    """

    payload: Payload
    incidents: list[Incident]
    worker: int = 0
    timed: Timed | None = None


class FetchedWork(NamedTuple):
    """The bytes of a micro-batch, fetched ahead from `began` to `ended`; `spans` are of the requests to storage."""

    fetched: Fetched
    spans: list[Span]
    began: float
    ended: float


@dataclass(frozen=True)
class Blueprint:
    """Everything a worker needs to make batches: it is sent to other processes, and each builds its own Producer.

    `new_maker` replaces the usual way to make samples of rows, `new_reader` the whole reader; `decode_threads` of each
    worker decode its media. `tokenizers` are the digests of tokenizers by path at construction, so that all workers
    produce the same tokens.
    """

    recipe: Recipe
    split: str | None = None
    map: UserFunction | None = None
    collate: UserFunction | None = None
    files: Files | None = None
    new_maker: NewMaker | None = None
    new_reader: Callable[..., SampleReader] = Reader
    decode_threads: int = 0
    tokenizers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        digests: dict[str, str] = {}
        for leaf in self._leaves():
            digests |= tokenizer_digests(self.recipe, leaf)
        object.__setattr__(self, "tokenizers", digests)

    def _leaves(self) -> list[Leaf]:
        return [leaf for found in leaves_by_stream(self.recipe, self.split) for leaf in found]

    def build(self) -> Producer:
        return Producer(self)

    def fingerprint(self) -> str:
        """The fingerprint of settings outside the plan that affect batch contents."""
        given = [None if function is None else name_of(function) for function in (self.map, self.collate)]
        return payload_fingerprint(self.recipe, self._leaves(), given, self.files)

    def check_picklable(self) -> None:
        """Refuse a function that cannot be pickled, before any worker starts."""
        for name, function in (("map", self.map), ("collate", self.collate)):
            try:
                pickle.dumps(function)
            except Exception as error:
                raise RecipeError(
                    f"{name}: {name_of(function) if function else name} cannot be sent to worker processes",
                    found=f"{type(error).__name__}: {error}",
                    expected="a function at the top level of a module",
                    fix=f'move it to a module and name it in the recipe (`{name}: "module:function"`), '
                    "or use worker threads",
                ) from error


class Producer:
    """Makes micro-batches."""

    def __init__(self, blueprint: Blueprint) -> None:
        recipe = blueprint.recipe
        if blueprint.collate is not None:  # a function given replaces the recipe's
            recipe = msgspec.structs.replace(recipe, collate=name_of(blueprint.collate))
        streams = leaves_by_stream(recipe, blueprint.split)
        noises = noises_of(recipe, [leaf for leaves in streams for leaf in leaves])
        leaves = {leaf.path: leaf for leaves in [*streams, noises] for leaf in leaves}
        tables = open_tables(leaves.values(), recipe, blueprint.files)
        self._streams: Streams = [[(leaf, tables[leaf.path]) for leaf in leaves] for leaves in streams]
        self._reader = blueprint.new_reader(
            recipe,
            self._streams,
            blueprint.map,
            blueprint.files,
            noises=[(leaf, tables[leaf.path]) for leaf in noises],
            stored_arrays=recipe.collate == "pad",
            tokenizers=blueprint.tokenizers,
            new_maker=blueprint.new_maker,
            decode_threads=blueprint.decode_threads,
        )
        self._how = Collation(
            None if recipe.fields is None else tuple(recipe.fields),
            recipe.sequence,
            dict(recipe.pad_values),
            {name: np.dtype(dtype) for name, dtype in recipe.dtypes.items()},
            recipe.masks,
        )
        self._recipe, self._map, self._files = recipe, blueprint.map, blueprint.files
        self._names_checked = not (recipe.pad_values or recipe.dtypes)
        self._collate = blueprint.collate
        self._as_list = recipe.collate == "list"
        if self._collate is None and recipe.collate not in ("pad", "list"):
            self._collate = resolve_function(recipe.collate, "collate")

    @property
    def looks_ahead(self) -> bool:
        """Whether fetching ahead is of any use: not where all files are on disks."""
        return self._reader.looks_ahead

    def fetch(self, work: Work) -> FetchedWork:
        """What the micro-batch needs from storage. Threads may call it while another makes a micro-batch."""
        spans: list[Span] = []
        token = SPANS.set(spans)
        began = monotonic()
        try:
            return FetchedWork(self._reader.fetch(work.request), spans, began, monotonic())
        finally:
            SPANS.reset(token)

    def __call__(
        self,
        work: Work,
        empty: Empty = np.empty,
        worker: int = 0,
        take: Callable[[], FetchedWork | None] | None = None,
    ) -> Produced:
        """The micro-batch, made by a worker of that number; padded and packed arrays are allocated with `empty`.

        `take` waits for what was fetched ahead of it.
        """
        stopwatch = Stopwatch()
        try:
            ahead = None if take is None else take()
            if ahead is not None:
                stopwatch.was_fetched(ahead.spans, ahead.began, ahead.ended)
            samples, incidents = self._reader.read(work.request, NONE_FETCHED if ahead is None else ahead.fetched)
            if not self._names_checked:
                self._check_names(samples)
            stopwatch.samples_made()
            try:
                payload = self._payload(samples, work, empty)
            except PlayheadError as error:
                error.at(self._place(error, samples, work, incidents))
                raise
            return Produced(payload, incidents, threading.get_native_id(), stopwatch.stop(work.request, worker))
        finally:
            stopwatch.leave()

    def _check_names(self, samples: list[Sample | None]) -> None:
        """Check once, with the first readable sample, that the fields named in the recipe exist."""
        sample = next((sample for sample in samples if sample is not None), None)
        if sample is not None and self._collate is None and not self._as_list:
            check_named_fields(self._recipe, sample, self._map, self._files)
            self._names_checked = True

    def _place(self, error: PlayheadError, samples: list[Sample | None], work: Work, incidents: list[Incident]) -> str:
        """The row that caused an error of collation, or the rows of the micro-batch where no single one did."""
        slot = getattr(error, "slot", None)
        if slot is not None and samples[slot] is None:  # an empty slot repeats the first readable sample
            slot = next((i for i, sample in enumerate(samples) if sample is not None), None)
        if slot is None:
            return f"the samples cannot be put into a batch ({describe(work, self._streams)})"
        leaf, table = self._streams[work.request.stream][int(work.request.picks.source[slot])]
        row = _row_delivered(work.request, slot, leaf.source.name, incidents)
        return f'source "{leaf.source.name}", row {row:,} ({table.place(row)})'

    def _payload(self, samples: list[Sample | None], work: Work, empty: Empty) -> Payload:
        if self._collate is not None:
            return _collated(self._collate, [sample for sample in samples if sample is not None])
        if self._as_list:
            return {"samples": samples}
        filler = partial(self._reader.filler, work.request)
        if work.packed:
            payload = packed(samples, self._how, work.shape.length or 0, filler, empty)
        else:
            payload = padded(samples, self._how, work.shape, filler, empty)
        if work.idle:
            payload["weights"][:] = 0
        return payload


def _row_delivered(request: Request, slot: int, source: str, incidents: list[Incident]) -> int:
    """The row whose sample is in a slot: the planned row, or its substitute from this or an earlier run."""
    epoch, row = int(request.picks.epoch[slot]), int(request.picks.row[slot])
    replaced = {(found.source, found.epoch, found.row): found.substitute for found in incidents}
    substitute = (request.known or {}).get(slot, replaced.get((source, epoch, row)))
    return row if substitute is None else substitute


def _collated(function: UserFunction, samples: list[Sample]) -> Payload:
    """The result of the user's collate function; an error names the function and the line."""
    if not samples:
        raise SampleError("every slot is empty, so there is no sample for the collate function")
    name = name_of(function)
    try:
        found = function(samples)
    except Exception as error:
        raise SampleError(
            f"the collate function {name} raised {type(error).__name__}: {error}",
            found=f"in {place_of(error, function)}",
        ) from error
    if found is None:
        raise SampleError(f"the collate function {name} returned None", expected="a batch: a dictionary, or anything")
    return found if isinstance(found, dict) else {"batch": found}
