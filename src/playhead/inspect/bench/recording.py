"""The real pipeline run for a while, every batch recorded: what it was asked for, when it came, how it was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from playhead.feed.delivery import Delivery
from playhead.feed.stats import BatchTiming
from playhead.feed.tasks import Work
from playhead.inspect.bench.memory_pressure import UseReading, read_use, reading_use
from playhead.inspect.bench.values import LoaderSettings, is_enough

_READ_MEMORY_SECONDS = 0.5
_SHOW_SECONDS = 0.1
_WARM_PART = 0.5  # of a run at most is spent before it counts

Progress = Callable[[float, int], None]  # the part of the run that is done, and its steps


@dataclass(frozen=True)
class BenchLimits:
    """When a run ends: after so many steps, or seconds since its workers are warm. A step takes `step_seconds`."""

    steps: int | None = None
    seconds: float | None = 10.0
    step_seconds: float = 0.0


class BatchRecord(NamedTuple):
    """A batch: its timing, the number of its worker, when the trainer asked for it and was given it, its work, and
    what it holds.
    """

    timing: BatchTiming
    worker: int
    asked: float
    given: float
    work: Work
    num_samples: int
    ends_step: bool

    @property
    def wait(self) -> float:
        return self.given - self.asked


@dataclass
class Recording:
    """What was recorded of a run, also of one that was interrupted. `first_seconds` is the time to the first batch.

    `memory` is read from the first batch on; what counts begins at its reading `memory_from`. `count_copied` gives the
    bytes that a shard cache has copied so far, `copied_bytes` are those of what counts.
    """

    count_copied: Callable[[], int] = lambda: 0
    records: list[BatchRecord] = field(default_factory=list)
    memory: list[UseReading] = field(default_factory=list)
    first_seconds: float = 0.0
    num_warm: int = 0  # the records that do not count: of workers that had just started
    num_steps: int = 0
    copied_bytes: int = 0
    has_ended: bool = False  # the stream, before a limit
    memory_from: int = 0
    _copied_before: int = 0
    _copied_warm: int = 0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Read memory, and count what is copied."""
        self._copied_before = self.count_copied()
        with reading_use(self.memory, _READ_MEMORY_SECONDS):
            try:
                yield
            finally:
                self.copied_bytes = self.count_copied() - self._copied_before - self._copied_warm

    def begin_counting(self) -> None:
        """The workers are warm: what comes from now on counts."""
        self.num_warm, self.memory_from = len(self.records), len(self.memory)
        self.memory.append(read_use())
        self._copied_warm = self.count_copied() - self._copied_before

    def count_enough(self, settings: LoaderSettings) -> None:
        """Count from the first batch on, where only that is enough for a verdict."""
        if self.num_warm <= 1 or self._is_enough_from(self.num_warm, settings):
            return
        if self._is_enough_from(1, settings):
            self.copied_bytes += self._copied_warm
            self.num_warm, self.memory_from, self._copied_warm = 1, 0, 0

    def _is_enough_from(self, first: int, settings: LoaderSettings) -> bool:
        if len(self.records) <= first:
            return False
        seconds = self.records[-1].given - self.records[first - 1].given
        return is_enough(len(self.records) - first, seconds, settings)


def record(
    loader: Delivery,
    limits: BenchLimits,
    settings: LoaderSettings,
    recording: Recording,
    progress: Progress = lambda _done, _steps: None,
) -> None:
    """Take batches as a trainer would, until a limit or the end of the stream.

    The simulated time of a step is spread over its micro-batches.
    """
    pause = limits.step_seconds / max(1, loader.lanes // loader.world_size)
    warming = _Warming(settings)
    begin = shown = time.monotonic()
    with ExitStack() as stack:
        for found in _records(loader, by_thread=settings.worker_kind == "thread"):
            recording.records.append(found)
            recording.num_steps += found.ends_step
            now = found.given
            if len(recording.records) == 1:
                recording.first_seconds = now - begin
                begin = now
                stack.enter_context(recording.measuring())
            if not recording.num_warm and warming.is_over(found, _part_done(limits, recording.num_steps, now - begin)):
                recording.begin_counting()
                begin = now
            elif recording.num_warm:
                done = _part_done(limits, recording.num_steps, now - begin)
                if now >= shown + _SHOW_SECONDS:
                    progress(done, recording.num_steps)
                    shown = now
                if done >= 1.0:
                    break
            if pause:
                time.sleep(max(0.0, now + pause - time.monotonic()))
        else:
            recording.has_ended = True


class _Warming:
    """Decides when a run begins to count: all that began before the first batch came is delivered, and no worker reads
    a source for the first time, which costs imports. It takes at most half of the time of a run, if every worker has
    delivered a batch.
    """

    def __init__(self, settings: LoaderSettings) -> None:
        self._workers, self._depth = settings.workers, max(1, settings.workers * settings.lookahead)
        self._seen: set[tuple[int, int, int]] = set()  # worker, sub-stream, source
        self._num = self._num_quiet = 0

    def is_over(self, record: BatchRecord, part_done: float) -> bool:
        request = record.work.request
        sources = {(record.worker, request.stream, source) for source in request.picks.source.tolist()}
        self._num += 1
        self._num_quiet = self._num_quiet + 1 if sources <= self._seen else 0
        self._seen |= sources
        if self._num >= self._depth and self._num_quiet >= self._depth:
            return True
        return self._num >= max(1, self._workers) and part_done >= _WARM_PART


def _records(loader: Delivery, *, by_thread: bool) -> Iterator[BatchRecord]:
    """The batches of a loader as records; the payload is dropped at once, as its memory is used again."""
    seen: list[tuple[BatchTiming, float, float]] = []
    threads: dict[int, int] = {}
    loader.watch(lambda *timed: seen.append(timed))
    try:
        for batch in loader:
            timing, asked, given = seen.pop()
            worker = threads.setdefault(batch.worker, len(threads)) if by_thread else timing.worker
            yield BatchRecord(timing, worker, asked, given, batch.task.work, batch.num_samples, batch.is_last_in_step)
            del batch
    finally:
        loader.watch(None)


def _part_done(limits: BenchLimits, steps: int, seconds: float) -> float:
    parts = [0.0]
    if limits.steps is not None:
        parts.append(steps / limits.steps)
    if limits.seconds is not None:
        parts.append(seconds / limits.seconds)
    return min(1.0, max(parts))
