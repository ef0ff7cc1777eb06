"""The speed of delivery: counts of one rank, and rates over the last seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from playhead.feed.batch import Batch
from playhead.recipe.values import Unit

_RECENT_SECONDS = 5.0
_APART_SECONDS = 0.25


@dataclass(frozen=True)
class Counts:
    """The counts up to a moment; lengths by unit, in the plan's whole numbers."""

    steps: int = 0
    batches: int = 0
    samples: int = 0
    length: dict[Unit, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rates:
    """The counts per second."""

    steps: float
    samples: float
    length: dict[Unit, float]


class Meter:
    """Counts the batches of a rank. `units` are those of the sub-streams."""

    def __init__(self, units: tuple[Unit, ...], clock: Callable[[], float] = time.perf_counter) -> None:
        self._units, self._clock = units, clock
        self._steps = self._batches = self._samples = 0
        self._length: dict[Unit, int] = dict.fromkeys(units, 0)
        self._begin = clock()
        self._end: float | None = None
        self._first: tuple[float, Counts] | None = None
        self._marks: deque[tuple[float, Counts]] = deque([(self._begin, self.counts())])

    @property
    def steps(self) -> int:
        """The steps finished."""
        return self._steps

    @property
    def seconds(self) -> float:
        return (self._clock() if self._end is None else self._end) - self._begin

    def count(self, batch: Batch) -> None:
        self._batches += 1
        self._steps += batch.is_last_in_step
        self._samples += batch.num_samples
        request = batch.task.work.request
        if request.lengths is not None and not batch.idle:
            self._length[self._units[request.stream]] += int(request.lengths.sum())
        now = self._clock()
        if self._first is None:
            self._first = (now, self.counts())
            self._marks.append(self._first)
            self._marks.popleft()
        if now - self._marks[-1][0] >= _APART_SECONDS:
            self._marks.append((now, self.counts()))
            while now - self._marks[0][0] > _RECENT_SECONDS:
                self._marks.popleft()

    def stop(self) -> None:
        """Stop the clock: what follows is not part of delivery."""
        if self._end is None:
            self._end = self._clock()

    def counts(self) -> Counts:
        return Counts(self._steps, self._batches, self._samples, dict(self._length))

    @property
    def seconds_to_first(self) -> float | None:
        """How long the first batch took: workers start, kernels load."""
        return None if self._first is None else self._first[0] - self._begin

    def mean(self) -> Rates:
        """The rates since the first batch; over the whole time if it was the only one."""
        since, before = self._first or self._marks[0]
        if self._batches < 2:
            since, before = self._begin, Counts(length=dict.fromkeys(self._units, 0))
        return _rates(before, self.counts(), self._begin + self.seconds - since)

    def recent(self) -> Rates:
        """The rates of the last seconds; they fall to 0 while no batch arrives."""
        since, before = self._marks[0]
        return _rates(before, self.counts(), self._clock() - since)


def _rates(before: Counts, after: Counts, seconds: float) -> Rates:
    seconds = max(seconds, 1e-9)
    return Rates(
        (after.steps - before.steps) / seconds,
        (after.samples - before.samples) / seconds,
        {unit: (length - before.length[unit]) / seconds for unit, length in after.length.items()},
    )
