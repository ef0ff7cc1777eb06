"""Consecutive steps laid out together: what a step costs is then little more than cutting arrays."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from operator import attrgetter

import numpy as np
from msgspec import Struct

from playhead.order.picks import Picks
from playhead.plan.cursor import Cursor, Place
from playhead.plan.step import MicroBatch, Part, Step
from playhead.plan.steps import reordered
from playhead.plan.window import Window
from playhead.types import IntArray

_NOTHING = Picks(*(np.empty(0, np.int64) for _ in range(3)))


class LaidOut(Struct, frozen=True):
    """Some lanes of a sub-stream in consecutive steps.

    Micro-batch s * len(lanes) + l is lane l of step s, and has the picks [starts[m], starts[m + 1]).
    """

    stream: int
    lanes: list[int]
    starts: list[int]
    picks: Picks
    lengths: IntArray | None = None
    outputs: IntArray | None = None

    def micro_batches(self, nth: int) -> Iterator[MicroBatch]:
        """The micro-batches of the nth step; one without picks is idle."""
        picks, lengths, outputs = self.picks, self.lengths, self.outputs
        for m, lane in enumerate(self.lanes, nth * len(self.lanes)):
            a, b = self.starts[m], self.starts[m + 1]
            yield MicroBatch(
                lane,
                self.stream,
                Picks(picks.source[a:b], picks.epoch[a:b], picks.row[a:b]),
                None if lengths is None else lengths[a:b],
                None if outputs is None else outputs[a:b],
                a == b,
            )

    def first_idle(self) -> int | None:
        """The first step with an idle lane."""
        sizes = np.diff(self.starts)
        return int(np.argmin(sizes)) // len(self.lanes) if len(sizes) and not sizes.all() else None


def lay_out(part: Part, window: Window | None, lanes: list[int], count: int) -> LaidOut:
    """Some lanes of `count` steps: their picks are looked up together. Without a window all of them are idle."""
    if part.place is None or window is None:
        return LaidOut(part.stream, lanes, [0] * (count * len(lanes) + 1), _NOTHING)
    firsts = (part.place.step + np.arange(count, dtype=np.int64)) * window.lanes
    nth = np.array([part.lanes.index(lane) for lane in lanes], np.int64)
    chosen = reordered(window.groups, (firsts[:, None] + nth).reshape(-1))
    lengths = None if window.lengths is None else window.lengths[chosen.members]
    outputs = None if window.outputs is None else window.outputs[chosen.members]
    picks = window.picks.take(chosen.members)
    return LaidOut(part.stream, lanes, chosen.starts.tolist(), picks, lengths, outputs)


def micro_batches(laid_out: tuple[LaidOut, ...], nth: int) -> Iterator[MicroBatch]:
    """The micro-batches of the nth step, by lane."""
    if len(laid_out) == 1:
        return laid_out[0].micro_batches(nth)
    return merge(*[found.micro_batches(nth) for found in laid_out], key=attrgetter("lane"))


class StepRange(Struct, frozen=True):
    """Consecutive steps in which the same sub-streams have the same lanes, each inside one window.

    `cursor` is where the first was asked for, `parts` are its own; `settled` is the cursor moved to where that step
    really is. `receipts` has the receipt after each step, `after` is the cursor after the last. `filled` are the
    micro-batches of a range of one step with idle lanes.
    """

    cursor: Cursor
    settled: Cursor
    parts: tuple[Part, ...]
    receipts: list[int | None]
    after: Cursor
    laid_out: tuple[LaidOut, ...]
    filled: tuple[MicroBatch, ...] | None = None

    def __len__(self) -> int:
        return len(self.receipts)

    def cursor_at(self, nth: int) -> Cursor:
        """The cursor before the nth step; with as many as there are steps, that after the last."""
        if nth == 0 or nth == len(self):
            return self.after if nth else self.cursor
        places = list(self.settled.places)
        for part in self.parts:
            if part.place is not None:
                places[part.stream] = _later(part.place, nth)
        return Cursor(self.settled.step + nth, tuple(places), self.settled.turn + nth, self.receipts[nth - 1])

    def micro_batches(self, nth: int) -> Iterator[MicroBatch]:
        """The micro-batches of the nth step that were laid out, by lane."""
        return micro_batches(self.laid_out, nth) if self.filled is None else iter(self.filled)

    def step(self, nth: int) -> Step:
        parts = [
            Part(part.stream, part.lanes, None if part.place is None else _later(part.place, nth))
            for part in self.parts
        ]
        batches = tuple(self.micro_batches(nth))
        return Step(self.settled.step + nth, batches, self.receipts[nth], tuple(parts))


def _later(place: Place, steps: int) -> Place:
    return Place(place.window, place.step + steps)
