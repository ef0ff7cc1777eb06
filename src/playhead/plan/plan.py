"""The plan: sub-streams fused into one stream of steps.

Most recipes have one sub-stream. Several are zipped (every step has lanes of each) or dealt whole steps by weight
with the blend's own closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from playhead.errors import EndOfStreamError
from playhead.order import blend as blending
from playhead.order.blend import Blend
from playhead.plan.chain import Chain
from playhead.plan.cursor import Cursor, Place
from playhead.plan.receipt import START, begin_step, fold_lanes, fold_steps
from playhead.plan.rules import FixedRule
from playhead.plan.segments import Stream, round_end, round_of, segment_at
from playhead.plan.step import Part, Step, with_idle_filled
from playhead.plan.step_range import LaidOut, StepRange, lay_out, micro_batches
from playhead.plan.window import Window, plan_window
from playhead.seeds import hash_text
from playhead.types import UIntArray

_TURNS_AT_A_TIME = 1024
_ALL = slice(None)
_SAMPLES_AT_A_TIME = 1 << 15  # in a range of steps: planning further ahead than this would only delay a first batch


@dataclass(frozen=True)
class Plan:
    """A pure function from cursors to steps; it remembers the last windows it planned, nothing else.

    `fuse` deals whole steps to sub-streams; None zips them (or there is one). Zipped sub-streams have lanes side by
    side; `interleaved` ones take turns lane by lane, so that a rank keeps to one of them. `chain` has the fingerprint
    of the recipe and of each amendment.
    """

    streams: tuple[Stream, ...]
    fuse: Blend | None
    chain: Chain
    interleaved: bool = False
    _windows: dict[int, Window] = field(default_factory=dict, compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """That of the whole plan, with all amendments."""
        return self.chain[-1].fingerprint

    @property
    def lanes(self) -> int:
        """The lanes of the first step; amendments may change them later."""
        lanes = [stream.segments[0].lanes for stream in self.streams]
        return lanes[0] if self.fuse is not None else sum(lanes)

    @cached_property
    def source_hashes(self) -> tuple[UIntArray, ...]:
        return tuple(np.array([hash_text(name) for name in s.source_names], np.uint64) for s in self.streams)

    def start(self) -> Cursor:
        return Cursor(0, tuple(Place() for _ in self.streams), 0, START)

    def window(self, stream: int, number: int) -> Window:
        """A planned window, remembered until another of the same sub-stream is asked for."""
        known = self._windows.get(stream)
        if known is None or known.number != number:
            known = plan_window(self.streams[stream], number)
            self._windows[stream] = known
        return known

    def steps(self, cursor: Cursor | None = None) -> Iterator[tuple[Step, Cursor]]:
        """Every step from the cursor to the end of its round, each with the cursor after it."""
        cursor = cursor or self.start()
        number = self.round_of(cursor)
        while self.round_of(cursor) == number and (found := self.step_at(cursor)) is not None:
            step, cursor = found
            yield step, cursor

    def round_of(self, cursor: Cursor) -> int:
        """The round a cursor stands in: that of the sub-stream that is furthest behind."""
        return min(round_of(stream, place.window) for stream, place in zip(self.streams, cursor.places, strict=True))

    def step_at(self, cursor: Cursor, lanes: slice = _ALL) -> tuple[Step, Cursor] | None:
        """The step at a cursor and the cursor after it; None at the end of the stream.

        `lanes` says which to lay out: one rank of thousands needs no picks of the others.
        """
        found = self.steps_at(cursor, lanes)
        return None if found is None else (found.step(0), found.after)

    def steps_at(self, cursor: Cursor, lanes: slice = _ALL, most: int = 1) -> StepRange | None:
        """The step at a cursor with up to `most - 1` that follow in its window; None at the end of the stream.

        Law: they are the steps that `step_at` gives one by one. Many samples, and idle lanes, make a range end sooner.
        """
        ready = self._settled(cursor)
        if ready is None:
            return None
        settled, parts = ready
        count = self._in_a_row(parts, most) if settled == cursor else 1
        laid_out = self._laid_out(parts, lanes, count)
        idle = [first for found in laid_out if (first := found.first_idle()) is not None]
        if idle and count > 1:
            count = max(1, min(idle))
            laid_out = self._laid_out(parts, lanes, count)
        filled = None
        if idle and min(idle) < count:
            whole = with_idle_filled([*micro_batches(self._laid_out(parts, _ALL, 1), 0)])
            filled = tuple([whole[batch.lane] for batch in micro_batches(laid_out, 0)])
        receipts = self._receipts(settled, parts, count)
        after = self._advanced(settled, parts, receipts)
        return StepRange(cursor, settled, parts, receipts, after, laid_out, filled)

    def advance(self, cursor: Cursor) -> Cursor | None:
        """The cursor one step on, without laying the step out; None at the end of the stream."""
        ready = self._settled(cursor)
        return None if ready is None else self._advanced(*ready, self._receipts(*ready, 1))

    def parts_at(self, cursor: Cursor) -> tuple[Part, ...]:
        """Which sub-stream has which lanes of the step at a cursor; empty at the end of the stream."""
        ready = self._settled(cursor)
        return () if ready is None else ready[1]

    def seek(self, step: int, known: Cursor | None = None) -> Cursor:
        """The cursor of a step: planned step by step from a known cursor, or, where every window has the same number
        of steps and the step is far, in closed form and without a receipt.
        """
        cursor = known or self.start()
        number = self.round_of(cursor)
        jump = self.jump(step, cursor)
        if jump is not None:
            return jump
        while cursor.step < step:
            found = self.advance(cursor)
            if found is None or self.round_of(cursor) != number:
                raise _past_the_end(step, cursor.step)
            cursor = found
        if self.round_of(cursor) != number:
            raise _past_the_end(step, cursor.step)
        return cursor

    def jump(self, step: int, known: Cursor) -> Cursor | None:
        """The cursor of a step in closed form, without a receipt; None where it is near, or must be planned for."""
        found = self._closed_form(step)
        return found if found is not None and found.places[0].window > known.places[0].window + 1 else None

    def _closed_form(self, step: int) -> Cursor | None:
        if len(self.streams) > 1:
            return None
        stream = self.streams[0]
        segment = stream.segments[0]
        rule = segment.rule
        endless = round_end(stream, 0) is None and len(stream.segments) == 1 and not segment.excluded
        if not isinstance(rule, FixedRule) or not endless:
            return None
        window, inside = divmod(step, segment.window_size // (rule.size * segment.lanes))
        return Cursor(step, (Place(window, inside),), 0, None)

    def _settled(self, cursor: Cursor) -> tuple[Cursor, tuple[Part, ...]] | None:
        """The cursor moved to where a step really is, and which sub-stream has its lanes; None at the end."""
        number = self.round_of(cursor)
        ends = [round_end(stream, number) for stream in self.streams]
        places = tuple(self._with_step(i, place, ends[i]) for i, place in enumerate(cursor.places))
        alive = [i for i, (place, end) in enumerate(zip(places, ends, strict=True)) if _before(place, end)]
        if not alive:
            return None
        turn = cursor.turn
        chosen = range(len(self.streams))
        if self.fuse is not None:
            turn = self._next_turn(turn, alive)
            members, _ = blending.resolve(self.fuse, turn, turn + 1)
            chosen = range(int(members[0]), int(members[0]) + 1)
        parts = []
        first_lane = 0
        for stream in chosen:
            place = places[stream]
            num_lanes = segment_at(self.streams[stream], place.window).lanes
            lanes = range(first_lane, first_lane + num_lanes)
            if self.interleaved:
                lanes = range(stream, num_lanes * len(self.streams), len(self.streams))
            parts.append(Part(stream, lanes, place if stream in alive else None))
            first_lane += num_lanes
        return Cursor(cursor.step, places, turn, cursor.receipt), tuple(parts)

    def _next_turn(self, turn: int, alive: list[int]) -> int:
        """The first turn from here on that goes to a sub-stream which has not ended."""
        assert self.fuse is not None
        while True:
            members, _ = blending.resolve(self.fuse, turn, turn + _TURNS_AT_A_TIME)
            (hits,) = np.nonzero(np.isin(members, alive))
            if len(hits):
                return turn + int(hits[0])
            turn += _TURNS_AT_A_TIME

    def _with_step(self, stream: int, place: Place, end: int | None) -> Place:
        """The place itself, or the start of the next window that has a step: one of holes alone has none."""
        while _before(place, end) and place.step >= self.window(stream, place.window).num_steps:
            place = Place(place.window + 1, 0)
        return place

    def _in_a_row(self, parts: tuple[Part, ...], most: int) -> int:
        """How many steps from here on have the same parts, each in its window, and not too many samples in all."""
        if self.fuse is not None:
            return 1
        for part in parts:
            if part.place is not None:
                window = self.window(part.stream, part.place.window)
                num_steps = window.num_steps
                samples = len(window.picks) // num_steps * len(parts) + 1
                most = min(most, num_steps - part.place.step, max(1, _SAMPLES_AT_A_TIME // samples))
        return most

    def _receipts(self, cursor: Cursor, parts: tuple[Part, ...], count: int) -> list[int | None]:
        """The receipt after each of the steps from a cursor on."""
        if cursor.receipt is None:
            return [None] * count
        playing = [
            (self.window(part.stream, part.place.window), part.place.step, part.lanes, self.source_hashes[part.stream])
            for part in parts
            if part.place is not None
        ]
        if len(playing) == 1:
            return [*fold_steps(cursor.receipt, cursor.step, count, *playing[0])]
        receipts: list[int | None] = []
        receipt = cursor.receipt
        for nth in range(count):
            receipt = begin_step(receipt, cursor.step + nth)
            for window, step, lanes, hashes in playing:
                receipt = fold_lanes(receipt, window, step + nth, lanes, hashes)
            receipts.append(receipt)
        return receipts

    def _advanced(self, cursor: Cursor, parts: tuple[Part, ...], receipts: list[int | None]) -> Cursor:
        """The cursor after as many steps as there are receipts."""
        count = len(receipts)
        places = list(cursor.places)
        for part in parts:
            if part.place is not None:
                last = Place(part.place.window, part.place.step + count - 1)
                places[part.stream] = self._after(part.stream, last)
        return Cursor(cursor.step + count, tuple(places), cursor.turn + count, receipts[-1])

    def _after(self, stream: int, place: Place) -> Place:
        """The next place, in the next window where this one is done: a cursor at the end of a round is past it."""
        if place.step + 1 < self.window(stream, place.window).num_steps:
            return Place(place.window, place.step + 1)
        following = Place(place.window + 1, 0)
        if not segment_at(self.streams[stream], place.window).excluded:
            return following
        number = round_of(self.streams[stream], place.window)
        return self._with_step(stream, following, round_end(self.streams[stream], number))

    def _laid_out(self, parts: tuple[Part, ...], lanes: slice, count: int) -> tuple[LaidOut, ...]:
        """The wanted lanes of the steps of some parts, the idle ones empty."""
        wanted = range(sum([len(part.lanes) for part in parts]))[lanes]
        found = []
        for part in parts:
            own = [*wanted] if len(parts) == 1 else [lane for lane in wanted if lane in part.lanes]
            window = None if part.place is None else self.window(part.stream, part.place.window)
            found.append(lay_out(part, window, own, count))
        return tuple(found)


def _before(place: Place, end: int | None) -> bool:
    return end is None or place.window < end


def _past_the_end(step: int, num_steps: int) -> EndOfStreamError:
    return EndOfStreamError(
        f"step {step:,} is past the end of the stream",
        found=f"{num_steps:,} steps in all",
        expected=f"a step from 0 to {num_steps - 1:,}",
    )
