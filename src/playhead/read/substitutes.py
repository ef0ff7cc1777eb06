"""Bad samples replaced: which rows may replace one, and the record of which row did."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from msgspec import Struct

from playhead.errors import DataError, SampleError
from playhead.formats.rows import Sample
from playhead.index.table import Table
from playhead.order.hashing import nth_below
from playhead.seeds import extend
from playhead.types import IntArray

NUM_CANDIDATES = 64


class Incident(Struct, frozen=True):
    """A pick whose sample was bad: the row that replaced it (None: an empty slot), and why."""

    source: str
    epoch: int
    row: int
    substitute: int | None
    reason: str
    step: int = 0
    lane: int = 0


class Wanted(Struct, frozen=True):
    """A pick of one source: its epoch and row, and its length as planned."""

    epoch: int
    row: int
    planned: int | None


# Makes the sample of a row with a planned length; raises if it cannot.
Make = Callable[[int, int | None], Sample]


def candidates(source_key: int, epoch: int, row: int, num_rows: int) -> IntArray:
    """The rows that may replace a pick, keyed by it: the same on every rank and worker."""
    key = np.uint64(extend(source_key, "substitute", epoch, row))
    return np.array([nth_below(key, i, min(num_rows, 1 << 32)) for i in range(NUM_CANDIDATES)], np.int64)


def substitute(table: Table, source_key: int, wanted: Wanted, make: Make) -> tuple[Sample | None, int | None]:
    """The longest good candidate that is not longer than planned, and its row; None if there is none."""
    rows = candidates(source_key, wanted.epoch, wanted.row, table.num_rows)
    for row in _by_length(table, rows, wanted.planned):
        if row == wanted.row:
            continue
        with suppress(SampleError, DataError):
            return make(row, own_length(table, row, wanted.planned)), row
    return None, None


def shortest(table: Table, source_key: int, wanted: Wanted, make: Make) -> Sample:
    """The shortest candidate that can be made, for a micro-batch whose slots are all empty."""
    rows = candidates(source_key, wanted.epoch, wanted.row, table.num_rows)
    reason = None
    for row in reversed(_by_length(table, rows, None)):
        try:
            return make(row, own_length(table, row, wanted.planned))
        except (SampleError, DataError) as error:
            reason = error.problem
    raise DataError(
        f'source "{table.name}", row {wanted.row:,}: neither the samples of the micro-batch nor any of '
        f"{len(rows)} substitutes can be read",
        found=f"the last: {reason}",
        fix="check the quarantine files under `cache_dir`, and fix the data, the map or the recipe",
    )


def own_length(table: Table, row: int, planned: int | None) -> int | None:
    """The planned length of a row that replaces another."""
    if planned is None or table.histogram is None:
        return planned
    return int(table.lengths_of(np.array([row]))[0])


def _by_length(table: Table, rows: IntArray, planned: int | None) -> list[int]:
    """Candidates not longer than planned, the longest first; in the given order if there are no lengths."""
    if table.histogram is None:
        return [int(row) for row in rows]
    lengths = table.lengths_of(rows).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    return [int(rows[i]) for i in order if planned is None or lengths[i] <= planned]
