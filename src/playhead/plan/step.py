"""A step: one micro-batch per lane."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from playhead.order.picks import Picks
from playhead.plan.cursor import Place
from playhead.types import IntArray


class MicroBatch(Struct, frozen=True):
    """What one rank feeds to one forward pass. `stream` says which sub-stream the picks' sources belong to.

    An idle one repeats the step's smallest real one, to be fed with weight 0.
    """

    lane: int
    stream: int
    picks: Picks
    lengths: IntArray | None
    outputs: IntArray | None = None
    idle: bool = False

    @property
    def num_samples(self) -> int:
        """The samples that count: none where the lane is idle."""
        return 0 if self.idle else len(self.picks)


class Part(Struct, frozen=True):
    """Lanes of a step, and the place of the sub-stream they are of; None where it ended."""

    stream: int
    lanes: range
    place: Place | None


class Step(Struct, frozen=True):
    """One optimizer step: its micro-batches, who has which lanes, and the receipt after it.

    The receipt is None where the way here was skipped.
    """

    number: int
    micro_batches: tuple[MicroBatch, ...]
    receipt: int | None
    parts: tuple[Part, ...] = ()


def with_idle_filled(found: list[MicroBatch]) -> tuple[MicroBatch, ...]:
    """Give every idle lane the smallest real micro-batch of the step."""
    busy = [batch for batch in found if not batch.idle]
    smallest = min(busy, key=_size)
    return tuple(replace(smallest, lane=batch.lane, idle=True) if batch.idle else batch for batch in found)


def _size(batch: MicroBatch) -> tuple[int, int, int]:
    total = 0 if batch.lengths is None else int(np.sum(batch.lengths))
    return len(batch.picks), total, batch.lane
