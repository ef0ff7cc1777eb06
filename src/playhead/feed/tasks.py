"""The plan as tasks for one rank: which micro-batch to make next, and where delivery stands after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from playhead.feed.collate import Shape
from playhead.feed.shapes import shape_of
from playhead.feed.state import Position
from playhead.feed.totals import COLUMNS, num_rows, running_totals
from playhead.order.picks import Picks
from playhead.plan.plan import Part, Plan
from playhead.plan.rules import Pack
from playhead.plan.segments import segment_at
from playhead.plan.step import MicroBatch
from playhead.recipe.values import Recipe, Unit
from playhead.types import IntArray


@dataclass(frozen=True)
class Work:
    """What a worker needs to make a micro-batch: small, and the same whoever makes it."""

    step: int
    lane: int
    stream: int
    idle: bool
    picks: Picks
    lengths: IntArray | None
    shape: Shape
    packed: bool


@dataclass(frozen=True)
class Task:
    """Work, and what is true once it is delivered."""

    work: Work
    is_last_in_step: bool
    after: Position


class TaskMaker:
    """Makes the tasks of one rank. It remembers the running totals of the windows under way, nothing else."""

    def __init__(self, plan: Plan, recipe: Recipe, units: tuple[Unit, ...], rank: int, world_size: int) -> None:
        self._plan, self._recipe, self._units = plan, recipe, units
        self._rank, self._world_size = rank, world_size
        self._running: dict[int, tuple[int, IntArray]] = {}

    def tasks(self, start: Position) -> Iterator[Task]:
        """The tasks from a position to the end of its round."""
        cursor, done, totals = start.cursor, start.lanes_done, start.totals
        number = self._plan.round_of(cursor)
        while self._plan.round_of(cursor) == number:
            parts = self._plan.parts_at(cursor)
            if not parts:
                return
            lanes = sum(len(part.lanes) for part in parts)
            counted = self._counted(parts)
            found = self._plan.step_at(cursor, range(done + self._rank, lanes, self._world_size))
            assert found is not None
            step, after = found
            for batch in step.micro_batches:
                until = batch.lane - self._rank + self._world_size
                so_far = totals + counted[until] - counted[done]
                is_last = until == lanes
                position = Position(after, 0, so_far) if is_last else Position(cursor, until, so_far)
                yield Task(self._work(step.number, batch, parts), is_last, position)
            totals = totals + counted[lanes] - counted[done]
            cursor, done = after, 0

    def _counted(self, parts: tuple[Part, ...]) -> IntArray:
        """Entry l holds the totals of the step's first l lanes."""
        num_lanes = sum(len(part.lanes) for part in parts)
        counted = np.zeros((num_lanes + 1, num_rows(self._plan), COLUMNS), np.int64)
        for part in parts:
            if part.place is not None:
                running = self._running_totals(part.stream, part.place.window)
                at = part.place.step * len(part.lanes)
                of_lanes = np.diff(running[at : at + len(part.lanes) + 1], axis=0)
                counted[part.lanes.start + 1 : part.lanes.stop + 1 : part.lanes.step] = of_lanes
        return np.cumsum(counted, axis=0)

    def _running_totals(self, stream: int, number: int) -> IntArray:
        known = self._running.get(stream)
        if known is None or known[0] != number:
            known = (number, running_totals(self._plan, stream, self._plan.window(stream, number)))
            self._running[stream] = known
        return known[1]

    def _work(self, step: int, batch: MicroBatch, parts: tuple[Part, ...]) -> Work:
        place = next(part.place for part in parts if part.stream == batch.stream)
        assert place is not None, "an idle lane repeats one that plays"
        rule = segment_at(self._plan.streams[batch.stream], place.window).rule
        shape = shape_of(self._recipe, rule, self._units[batch.stream], batch)
        packed = isinstance(rule, Pack)
        return Work(step, batch.lane, batch.stream, batch.idle, batch.picks, batch.lengths, shape, packed)
