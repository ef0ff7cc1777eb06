"""The plan as tasks for one rank: which micro-batch to make next, and the position after it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.deal import Identity, after_lane, lanes_left
from playhead.feed.collate import Shape
from playhead.feed.progress import Progress, ProgressMaker
from playhead.feed.quarantine import Quarantine
from playhead.feed.shapes import shape_of
from playhead.feed.state import Position
from playhead.order.picks import Picks
from playhead.plan.plan import Plan
from playhead.plan.rules import PackRule, Rule
from playhead.plan.segments import segment_at
from playhead.plan.step import MicroBatch, Part
from playhead.read import Request
from playhead.recipe.values import Recipe, Unit

_STEPS_AT_A_TIME = 64
_HEAD = struct.Struct("10q")


class Work(Struct, frozen=True):
    """What a worker needs to make a micro-batch: what to read, and how to put it into a batch."""

    request: Request
    idle: bool
    shape: Shape
    packed: bool

    def to_bytes(self) -> bytes:
        """The work as sent to a worker: a few numbers, then the arrays. Law: `from_bytes` restores it."""
        request, picks = self.request, self.request.picks
        known = request.known or {}
        shape = [-1 if n is None else n for n in (self.shape.length, self.shape.size)]
        counts = (len(picks), len(known), request.lengths is not None)
        head = _HEAD.pack(request.stream, request.step, request.lane, self.idle, self.packed, *shape, *counts)
        columns = [head, picks.source.tobytes(), picks.epoch.tobytes(), picks.row.tobytes()]
        if request.lengths is not None:
            columns.append(request.lengths.tobytes())
        if known:
            pairs = [(position, -1 if row is None else row) for position, row in known.items()]
            columns.append(np.array(pairs, np.int64).tobytes())
        return b"".join(columns)

    @staticmethod
    def from_bytes(data: bytes) -> Work:
        stream, step, lane, idle, packed, length, size, count, num_known, has_lengths = _HEAD.unpack_from(data)
        numbers = np.frombuffer(data, np.int64, -1, _HEAD.size)
        num_columns = 4 if has_lengths else 3
        columns = numbers[: num_columns * count].reshape(num_columns, count)
        pairs = numbers[num_columns * count :].reshape(num_known, 2).tolist() if num_known else []
        known = {position: None if row < 0 else row for position, row in pairs} or None
        picks = Picks(columns[0], columns[1], columns[2])
        request = Request(stream, picks, columns[3] if has_lengths else None, step, lane, known)
        shape = Shape(None if length < 0 else length, None if size < 0 else size)
        return Work(request, bool(idle), shape, bool(packed))

    def __reduce__(self) -> tuple[Any, ...]:
        return Work.from_bytes, (self.to_bytes(),)


class Task(Struct, frozen=True):
    """Work, the position after its delivery, and the number of the loader that delivers it.

    The position is after `num_steps` of the steps in progress and `lanes_done` lanes of the next. A copy in another
    process, or on disk, holds the position itself.
    """

    work: Work
    is_last_in_step: bool
    loader: int
    progress: Progress | Position
    num_steps: int
    lanes_done: int

    @property
    def after(self) -> Position:
        found = self.progress
        return found.position(self.num_steps, self.lanes_done) if isinstance(found, Progress) else found

    @property
    def ends_range(self) -> bool:
        """Whether it is the last task of its range of steps: a window ends only between two ranges."""
        return isinstance(self.progress, Progress) and self.num_steps == len(self.progress.steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self.work, self.is_last_in_step, self.loader, self.after, self.num_steps, self.lanes_done)


class TaskMaker:
    """Makes the tasks of one rank.

    `units` are the units of length of each sub-stream. If the recipe replaces bad samples, `quarantine` knows which
    rows replaced them last time, so that a replay is identical.
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
        progress_maker = ProgressMaker(self._plan)
        while self._plan.round_of(start.cursor) == start.round:
            wanted = lanes_left(self._rank, self._world_size, start.lanes_done)
            steps = self._plan.steps_at(start.cursor, wanted, 1 if start.lanes_done else _STEPS_AT_A_TIME)
            if steps is None:
                return
            progress = progress_maker.begin(steps, start)
            yield from self._tasks_of(progress, loader)
            start = progress.position(len(steps), 0)

    def _tasks_of(self, progress: Progress, loader: int) -> Iterator[Task]:
        steps = progress.steps
        rules = {part.stream: self._rule(part) for part in steps.parts if part.place is not None}
        lanes = sum([len(part.lanes) for part in steps.parts])
        for nth in range(len(steps)):
            for batch in steps.micro_batches(nth):
                work = self._work(steps.settled.step + nth, batch, rules[batch.stream])
                done, is_last = after_lane(batch.lane, self._rank, self._world_size, lanes)
                if is_last:
                    yield Task(work, True, loader, progress, nth + 1, 0)
                else:
                    yield Task(work, False, loader, progress, nth, done)

    def _rule(self, part: Part) -> Rule:
        assert part.place is not None
        return segment_at(self._plan.streams[part.stream], part.place.window).rule

    def _work(self, number: int, batch: MicroBatch, rule: Rule) -> Work:
        """The work of a micro-batch of step `number`; an idle lane repeats an active one."""
        stream = batch.stream
        shape = shape_of(self._recipe, rule, self._units[stream], batch)
        known = None
        if self._quarantine is not None:
            known = self._quarantine.known(batch.picks, self._plan.streams[stream].source_names)
        request = Request(stream, batch.picks, batch.lengths, number, batch.lane, known)
        return Work(request, batch.idle, shape, isinstance(rule, PackRule))
