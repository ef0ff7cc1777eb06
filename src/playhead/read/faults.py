"""Bad samples: which rows may stand in for them, and the record of what did."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from playhead.errors import PlayheadError
from playhead.order.hashing import nth_below
from playhead.seeds import extend
from playhead.types import IntArray

NUM_CANDIDATES = 64


class Incident(Struct, frozen=True):
    """A pick whose sample was bad: the row that stood in (None: an empty slot), and why."""

    source: str
    epoch: int
    row: int
    substitute: int | None
    reason: str
    step: int = 0
    lane: int = 0


def placed(error: PlayheadError, source: str, row: str, place: str) -> PlayheadError:
    """An error about a sample, told with the sample's source, row and place."""
    where = f'source "{source}", {row}' if place in error.problem else f'source "{source}", {row} ({place})'
    return type(error)(f"{where}: {error.problem}", found=error.found, expected=error.expected, fix=error.fix)


def candidates(source_key: int, epoch: int, row: int, num_rows: int) -> IntArray:
    """The rows that may stand in for a pick, keyed by it: the same whoever asks."""
    key = np.uint64(extend(source_key, "substitute", epoch, row))
    return np.array([nth_below(key, i, min(num_rows, 1 << 32)) for i in range(NUM_CANDIDATES)], np.int64)
