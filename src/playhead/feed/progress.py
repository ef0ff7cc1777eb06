"""The progress of delivery in a range of steps: two counters, from which a position is computed on demand."""

from __future__ import annotations

from msgspec import Struct

from playhead.deal import num_done
from playhead.feed.state import Position
from playhead.feed.totals import running_totals
from playhead.plan.plan import Plan
from playhead.plan.step import Part
from playhead.plan.step_range import StepRange
from playhead.types import IntArray


class Progress(Struct, frozen=True):
    """A range of steps in progress in a round, and its totals.

    `base` are the totals where the range begins; `running` has those of the windows of its parts, by micro-batch.
    """

    steps: StepRange
    round: int
    base: IntArray
    running: tuple[tuple[Part, IntArray], ...]

    def position(self, num_steps: int, lanes_done: int) -> Position:
        """The position after `num_steps` steps of the range and `lanes_done` lanes of the next step."""
        return Position(self.steps.cursor_at(num_steps), lanes_done, self.totals(num_steps, lanes_done), self.round)

    def totals(self, num_steps: int, lanes_done: int) -> IntArray:
        total: IntArray = self.base.copy()
        for part, running in self.running:
            assert part.place is not None
            first = part.place.step * len(part.lanes)
            done = num_steps * len(part.lanes) + num_done(part.lanes, lanes_done)
            total += running[first + done] - running[first]
        return total


class ProgressMaker:
    """Makes the progress of one range after another; caches the running totals of the current windows."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._running: dict[int, tuple[int, IntArray]] = {}

    def begin(self, steps: StepRange, start: Position) -> Progress:
        """The progress in a range that begins at `start`, which may be inside the first step."""
        parts = [(part, self._window(part)) for part in steps.parts if part.place is not None]
        progress = Progress(steps, start.round, start.totals, tuple(parts))
        if not start.lanes_done:
            return progress
        base = 2 * start.totals - progress.totals(0, start.lanes_done)
        return Progress(steps, start.round, base, tuple(parts))

    def _window(self, part: Part) -> IntArray:
        assert part.place is not None
        number = part.place.window
        known = self._running.get(part.stream)
        if known is None or known[0] != number:
            known = (number, running_totals(self._plan, part.stream, self._plan.window(part.stream, number)))
            self._running[part.stream] = known
        return known[1]
