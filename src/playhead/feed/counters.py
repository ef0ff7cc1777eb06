"""Counts what a loader delivers, cheaply: batches are noted as they come and added up now and then."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from operator import sub
from statistics import median
from threading import Lock
from time import monotonic

from msgspec.structs import replace

from playhead.feed.process_memory import process_memory
from playhead.feed.stats import STAGES, BatchTiming, LoaderStats, SlowWait, Timed, Watcher, WorkerStats

_NOTES = 256  # batches noted before they are added up
_MOST_SLOW = 32
_UNSETTLED = 32  # batches whose successors are awaited before it is counted how many were ready
_MEDIANS = 5
_SLOW_SECONDS = 0.001  # a shorter wait is never worth a report
_FIELDS = BatchTiming.__struct_fields__
_ENDED = _FIELDS.index("ended")
# The fields of a timing that are added up, and where they are in it.
_SUMS = {
    name: _FIELDS.index(name)
    for name in (*STAGES, "ahead", "waited", "num_requests", "num_bytes", "cache_hits", "cache_misses", "cache_bytes")
}

_Note = tuple[Timed, float, float, int, bool]  # asked, given, samples, whether it ends a step


class Counters:
    """The counters of one loader. `stats` may be asked for in another thread than the training loop's.

    Without workers, batches are made while the training loop waits.
    """

    def __init__(self, *, has_workers: bool = True) -> None:
        self._lock = Lock()
        self._has_workers = has_workers
        self.watcher: Watcher | None = None
        self._notes: list[_Note] = []
        self._given: float | None = None  # when the training loop was given the last batch
        self._batches = self._steps = self._samples = 0
        self._wait = self._consumer = 0.0
        self._workers: dict[int, WorkerStats] = {}  # also of the processes that a worker had before
        self._faults: dict[int, dict[int, int]] = {}  # major faults of each worker's processes, as last seen
        self._waits: deque[float] = deque(maxlen=_NOTES)
        self._started: set[int] = set()
        self._slow: deque[SlowWait] = deque(maxlen=_MOST_SLOW)
        self._unsettled: list[tuple[float, float]] = []  # when a batch had ended, and when it was asked for
        self._ready_sum = self._ready_last = self._ready_count = 0

    def begin(self) -> None:
        """An iteration begins: what happened since the last one is not the training loop's time between batches."""
        with self._lock:
            self._add_up()
            self._given = None

    def note(self, timed: Timed, asked: float, num_samples: int, ends_step: bool) -> None:
        """A batch is about to be delivered, which the training loop asked for at `asked`."""
        given = monotonic()
        with self._lock:
            self._notes.append((timed, asked, given, num_samples, ends_step))
            if len(self._notes) >= _NOTES:
                self._add_up()
        if self.watcher is not None and timed:
            self.watcher(BatchTiming(*timed), asked, given)

    def stats(self) -> LoaderStats:
        with self._lock:
            return self._stats()

    def _stats(self) -> LoaderStats:
        self._add_up()
        if not self._ready_count:
            self._count_ready(0)
        workers = []
        for number in sorted(self._workers):
            found = self._workers[number]
            use, faults = process_memory(found.process), self._faults.setdefault(number, {})
            faults[found.process] = max(use.major_faults, faults.get(found.process, 0))  # none of one that has ended
            resident, major = use.resident_bytes, sum(faults.values())
            workers.append(replace(found, resident_bytes=resident, major_faults=major))
        here = process_memory(os.getpid())
        names = [name for name in WorkerStats.__struct_fields__ if name not in ("worker", "process")]
        total = WorkerStats(**{name: sum(getattr(worker, name) for worker in workers) for name in names})
        processes = {worker.process: worker for worker in workers}.values()  # threads share one, and its memory
        total = replace(
            total,
            resident_bytes=sum(worker.resident_bytes for worker in processes),
            major_faults=sum(worker.major_faults for worker in processes),
        )
        return LoaderStats(
            batches=self._batches,
            steps=self._steps,
            samples=self._samples,
            wait_seconds=self._wait,
            consumer_seconds=self._consumer,
            queue_depth_mean=self._ready_sum / self._ready_count if self._ready_count else 0.0,
            queue_depth_last=self._ready_last,
            resident_bytes=here.resident_bytes,
            major_faults=here.major_faults,
            total=total,
            workers=tuple(workers),
            slow=tuple(self._slow),
        )

    def _add_up(self) -> None:
        notes, self._notes = self._notes, []
        if not notes:
            return
        timed, asked, given, samples, ends = zip(*notes, strict=True)
        self._batches += len(notes)
        self._samples += sum(samples)
        self._steps += sum(ends)
        self._wait += sum(map(sub, given, asked))  # sums of clock readings would be rounded to microseconds
        self._consumer += sum(map(sub, asked[1:], given))
        if self._given is not None:
            self._consumer += asked[0] - self._given
        self._given = given[-1]
        by_worker: dict[tuple[int, int], list[int]] = {}
        for i, each in enumerate(timed):
            if each:
                by_worker.setdefault(each[:2], []).append(i)
        for (process, worker), made in by_worker.items():
            before = replace(self._workers.get(worker) or WorkerStats(worker=worker), process=process)
            columns = [*zip(*[timed[i] for i in made], strict=True)]
            sums = {name: getattr(before, name) + sum(columns[at]) for name, at in _SUMS.items()}
            sums |= {"batches": before.batches + len(made), "samples": before.samples + sum([samples[i] for i in made])}
            self._workers[worker] = replace(before, **sums)
        self._find_slow(notes)
        self._unsettled += [(each[_ENDED], when) for each, when in zip(timed, asked, strict=True) if each]
        self._count_ready(_UNSETTLED)

    def _find_slow(self, notes: list[_Note]) -> None:
        waits = [given - asked for _, asked, given, _, _ in notes]
        self._waits.extend(waits)
        limit = max(_MEDIANS * median(self._waits), _SLOW_SECONDS)
        for (timed, asked, *_), wait in zip(notes, waits, strict=True):
            if not timed:
                continue
            is_first = timed[1] not in self._started
            if is_first:
                self._started.add(timed[1])
            if wait > limit:
                timing = BatchTiming(*timed)
                stage = self._stage(timing, asked, wait, is_first)
                path = timing.slowest_path if stage in ("open", "read") else None
                self._slow.append(SlowWait(timing.step, timing.lane, timing.worker, stage, path, wait))

    def _stage(self, timing: BatchTiming, asked: float, wait: float, is_first: bool) -> str:
        """What the training loop waited for; `is_first` says whether it was the worker's first batch."""
        if timing.began - asked > wait / 2:
            return "plan" if not self._has_workers else "start" if is_first else "queue"
        parts = timing.own_seconds()
        stage = max(parts, key=parts.__getitem__)
        return stage if stage != "storage" else "open" if timing.open > timing.read else "read"

    def _count_ready(self, num_kept: int) -> None:
        """Count how many batches were ready when one was asked for: it and later ones that had ended by then.

        That is known when later ones are delivered, so the last batches wait for the next call.
        """
        settled = len(self._unsettled) - num_kept
        if settled <= 0:
            return
        ended = sorted([end for end, _ in self._unsettled])
        counts = [max(0, bisect_right(ended, self._unsettled[i][1]) - i) for i in range(settled)]
        del self._unsettled[:settled]
        self._ready_sum += sum(counts)
        self._ready_count += settled
        self._ready_last = counts[-1]
