"""Samples of the planned lengths without any file: what loading costs when reading costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from playhead.formats.rows import Sample
from playhead.index.table import Table
from playhead.read.reader import NONE_FETCHED, Fetched, Request
from playhead.read.substitutes import Incident
from playhead.recipe.tree import Leaf
from playhead.recipe.units import ceil_div
from playhead.recipe.values import Recipe
from playhead.types import Array


class PlannedReader:
    """Reads nothing: the sequence field of every sample is zeros of its planned length, and there is no other field.

    Its dtype is that of `dtypes`; without one it is float32 for lengths in seconds and int64 for all others. What a
    plan does not know is left out: other fields, and the length of a source without lengths, which counts as 1. It
    takes the arguments of a Reader and ignores those about reading.
    """

    looks_ahead = False

    def __init__(self, recipe: Recipe, streams: Sequence[Sequence[tuple[Leaf, Table]]], *_: Any, **__: Any) -> None:
        self._name = recipe.sequence or "tokens"
        self._rate = round(recipe.sequence_rate or 1000)
        self._units = [[leaf.unit for leaf, _ in stream] for stream in streams]
        given = recipe.dtypes.get(self._name)
        self._dtypes = {True: np.dtype(given or np.float32), False: np.dtype(given or np.int64)}
        self._zeros: dict[bool, Array] = {key: np.zeros(0, dtype) for key, dtype in self._dtypes.items()}

    def fetch(self, request: Request) -> Fetched:  # noqa: ARG002 - there is nothing to fetch
        return NONE_FETCHED

    def read(self, request: Request, fetched: Fetched = NONE_FETCHED) -> tuple[list[Sample | None], list[Incident]]:
        del fetched
        units = self._units[request.stream]
        lengths = [1] * len(request.picks) if request.lengths is None else request.lengths.tolist()
        sources = request.picks.source.tolist()
        return [self._sample(units[source], size) for source, size in zip(sources, lengths, strict=True)], []

    def filler(self, request: Request) -> Sample:
        return self._sample(self._units[request.stream][0], 1)

    def _sample(self, unit: str, length: int) -> Sample:
        is_time = unit == "seconds"
        size = ceil_div(length * self._rate, 1000) if is_time else length
        if len(self._zeros[is_time]) < size:
            self._zeros[is_time] = np.zeros(2 * size, self._dtypes[is_time])
        return {self._name: self._zeros[is_time][:size]}
