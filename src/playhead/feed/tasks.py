"""The plan as tasks for one rank: which micro-batch to make next, and where delivery stands after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.deal import Identity, after_lane, lanes_left
from playhead.feed.collate import Shape
from playhead.feed.quarantine import Quarantine
from playhead.feed.shapes import shape_of
from playhead.feed.state import Position
from playhead.feed.totals import Counter
from playhead.order.picks import Picks
from playhead.plan.plan import Plan
from playhead.plan.rules import PackRule
from playhead.plan.segments import segment_at
from playhead.plan.step import MicroBatch, Step
from playhead.read import Request
from playhead.recipe.values import Recipe, Unit


class Work(Struct, frozen=True):
    """What a worker needs to make a micro-batch: what to read, and how to put it into a batch."""

    request: Request
    idle: bool
    shape: Shape
    packed: bool

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrays travel to workers as plain bytes, in a quarter of the time."""
        asked = self.request
        picks = (asked.picks.source.tobytes(), asked.picks.epoch.tobytes(), asked.picks.row.tobytes())
        lengths = None if asked.lengths is None else asked.lengths.tobytes()
        place = (asked.step, asked.lane, asked.known)
        how = (self.idle, (self.shape.length, self.shape.size), self.packed)
        return _unpacked, (asked.stream, picks, lengths, place, how)


def _unpacked(
    stream: int,
    picks: tuple[bytes, bytes, bytes],
    lengths: bytes | None,
    place: tuple[int, int, dict[int, int | None] | None],
    how: tuple[bool, tuple[int | None, int | None], bool],
) -> Work:
    arrays = [np.frombuffer(data, np.int64) for data in picks]
    planned = None if lengths is None else np.frombuffer(lengths, np.int64)
    idle, shape, packed = how
    return Work(Request(stream, Picks(*arrays), planned, *place), idle, Shape(*shape), packed)


class Task(Struct, frozen=True):
    """Work, what is true once it is delivered, and the number of the loader that delivers it."""

    work: Work
    is_last_in_step: bool
    after: Position
    loader: int


class TaskMaker:
    """Makes the tasks of one rank.

    `units` are those of the lengths of each sub-stream. A `quarantine`, where the recipe replaces bad samples, knows
    which rows replaced them the last time, so that a replay is identical.
    """

    def __init__(
        self,
        plan: Plan,
        recipe: Recipe,
        units: tuple[Unit, ...],
        identity: Identity,
        quarantine: Quarantine | None,
    ) -> None:
        self._plan, self._recipe, self._units = plan, recipe, units
        self._rank, self._world_size, _ = identity
        self._quarantine = quarantine

    def tasks(self, start: Position, loader: int) -> Iterator[Task]:
        """The tasks from a position to the end of its round."""
        cursor, done = start.cursor, start.lanes_done
        rank, world_size = self._rank, self._world_size
        counter: Counter | None = None
        while self._plan.round_of(cursor) == start.round:
            found = self._plan.step_at(cursor, lanes_left(rank, world_size, done))
            if found is None:
                return
            step, after = found
            if counter is None:
                counter = Counter(self._plan)
                counter.start(step, done, cursor.places, start.totals)
            lanes = sum([len(part.lanes) for part in step.parts])
            for batch in step.micro_batches:
                done, is_last = after_lane(batch.lane, rank, world_size, lanes)
                counted = counter.at(step, done, cursor.places)
                place = (after, 0) if is_last else (cursor, done)
                yield Task(self._work(step, batch), is_last, Position(*place, counted, start.round), loader)
            cursor, done = after, 0

    def _work(self, step: Step, batch: MicroBatch) -> Work:
        stream = batch.stream
        place = next(part.place for part in step.parts if part.stream == stream)
        assert place is not None, "an idle lane repeats one that plays"
        rule = segment_at(self._plan.streams[stream], place.window).rule
        shape = shape_of(self._recipe, rule, self._units[stream], batch)
        known = None
        if self._quarantine is not None:
            known = self._quarantine.known(batch.picks, self._plan.streams[stream].source_names)
        request = Request(stream, batch.picks, batch.lengths, step.number, batch.lane, known)
        return Work(request, batch.idle, shape, isinstance(rule, PackRule))
