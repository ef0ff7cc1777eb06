"""Counts what a loader delivers, cheaply: batches are noted as they come and added up now and then."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from operator import sub
from threading import Lock
from time import monotonic

import numpy as np
from msgspec.structs import replace

from playhead.feed.process_memory import process_memory
from playhead.feed.stats import (
    NUMBERS,
    STAGES,
    WHOLE,
    BatchTiming,
    LoaderStats,
    SlowWait,
    Timed,
    Watcher,
    WorkerStats,
    timing_of,
)
from playhead.types import FloatArray, IntArray

_NOTES = 256  # batches noted before they are added up
_MOST_SLOW = 32
_UNSETTLED = 32  # batches whose successors are awaited before it is counted how many were ready
_MEDIANS = 5
_SLOW_SECONDS = 0.001  # a shorter wait is never worth a report
_PROCESS, _WORKER, _ENDED = map(NUMBERS.index, ("process", "worker", "ended"))
_SUMMED = (*STAGES, "ahead", "waited", "num_requests", "num_bytes", "cache_hits", "cache_misses", "cache_bytes")

_Note = tuple[Timed | None, float, float, int, bool]  # asked, given, samples, whether it ends a step


@dataclass
class _WorkerTotal:
    """The totals of a worker, also of the processes that it had before. `sums` are those of all numbers of timings.

    `faults` are the major faults of each of its processes, as last seen.
    """

    sums: FloatArray
    process: int = -1
    batches: int = 0
    samples: int = 0
    faults: dict[int, int] = field(default_factory=dict)


def _stats_of(number: int, total: _WorkerTotal) -> WorkerStats:
    use, faults = process_memory(total.process), total.faults
    faults[total.process] = max(use.major_faults, faults.get(total.process, 0))  # none of one that has ended
    sums = {name: float(total.sums[NUMBERS.index(name)]) for name in _SUMMED}
    sums |= {name: int(sums[name]) for name in _SUMMED if name in WHOLE}
    return WorkerStats(
        worker=number,
        process=total.process,
        batches=total.batches,
        samples=total.samples,
        resident_bytes=use.resident_bytes,
        major_faults=sum(faults.values()),
        **sums,  # type: ignore[arg-type]
    )


class Counters:
    """The counters of one loader. `stats` may be asked for in another thread than the training loop's.

    Without workers, batches are made while the training loop waits.
    """

    def __init__(self, *, has_workers: bool = True) -> None:
        self._lock = Lock()
        self._has_workers = has_workers
        self.watcher: Watcher | None = None
        self._notes: deque[_Note] = deque()  # appended to without the lock
        self._given: float | None = None  # when the training loop was given the last batch
        self._batches = self._steps = self._samples = 0
        self._wait = self._consumer = 0.0
        self._workers: dict[int, _WorkerTotal] = {}
        self._waits = np.empty(0)  # the last ones
        self._slow: deque[SlowWait] = deque(maxlen=_MOST_SLOW)
        self._unsettled = np.empty((2, 0))  # when batches had ended, and when they were asked for
        self._ready_sum = self._ready_last = self._ready_count = 0

    def begin(self) -> None:
        """An iteration begins: what happened since the last one is not the training loop's time between batches."""
        with self._lock:
            self._add_up()
            self._given = None

    def note(self, timed: Timed | None, asked: float, num_samples: int, ends_step: bool) -> None:
        """A batch is about to be delivered, which the training loop asked for at `asked`."""
        given = monotonic()
        self._notes.append((timed, asked, given, num_samples, ends_step))
        if len(self._notes) >= _NOTES:
            with self._lock:
                self._add_up()
        if self.watcher is not None and timed is not None:
            self.watcher(timing_of(timed), asked, given)

    def stats(self) -> LoaderStats:
        with self._lock:
            return self._stats()

    def _stats(self) -> LoaderStats:
        self._add_up()
        if not self._ready_count:
            self._count_ready(0)
        workers = [_stats_of(number, self._workers[number]) for number in sorted(self._workers)]
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
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        if not notes:
            return
        timed, asked, given, samples, ends = zip(*notes, strict=True)
        self._batches += len(notes)
        self._samples += sum(samples)
        self._steps += sum(ends)
        self._wait += sum(map(sub, given, asked))  # not sums of clock readings, which lose digits as they grow
        self._consumer += sum(map(sub, asked[1:], given))
        if self._given is not None:
            self._consumer += asked[0] - self._given
        self._given = given[-1]
        if None in timed:  # only where counters are switched off, to measure what they cost
            return
        table = np.frombuffer(b"".join([each[0] for each in timed])).reshape(len(notes), len(NUMBERS))
        moments = np.array((asked, given))
        firsts = self._add_to_workers(table, np.array(samples))
        self._find_slow(notes, moments[1] - moments[0], firsts)
        if self._has_workers:
            self._unsettled = np.concatenate((self._unsettled, (table[:, _ENDED], moments[0])), axis=1)
            self._count_ready(_UNSETTLED)

    def _add_to_workers(self, table: FloatArray, samples: IntArray) -> list[int]:
        """Add to the totals of every worker; the first batches of workers, as rows of the table."""
        order = np.argsort(table[:, _WORKER], kind="stable")
        numbers, begins = np.unique(table[order, _WORKER], return_index=True)
        sums = np.add.reduceat(table[order], begins, axis=0)
        counts = np.add.reduceat(np.array((np.ones_like(samples), samples))[:, order], begins, axis=1)
        lasts = [*begins[1:] - 1, len(order) - 1]
        firsts = []
        for i, number in enumerate(map(int, numbers)):
            total = self._workers.get(number)
            if total is None:
                firsts.append(int(order[begins[i]]))
                total = self._workers[number] = _WorkerTotal(np.zeros(len(NUMBERS)))
            total.sums += sums[i]
            total.batches += int(counts[0, i])
            total.samples += int(counts[1, i])
            total.process = int(table[order[lasts[i]], _PROCESS])
        return firsts

    def _find_slow(self, notes: list[_Note], waits: FloatArray, firsts: list[int]) -> None:
        """Pin the waits over five medians; `firsts` are the first batches of workers."""
        self._waits = np.concatenate((self._waits, waits))[-_NOTES:]
        limit = max(_MEDIANS * float(np.median(self._waits)), _SLOW_SECONDS)
        for i in np.flatnonzero(waits > limit).tolist():
            timed, asked, *_ = notes[i]
            if timed is not None:
                timing, wait = timing_of(timed), float(waits[i])
                stage = self._stage(timing, asked, wait, i in firsts)
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
        ended, asked = self._unsettled
        settled = len(asked) - num_kept
        if settled <= 0:
            return
        counts = np.searchsorted(np.sort(ended), asked[:settled], side="right") - np.arange(settled)
        counts = np.maximum(counts, 0)
        self._unsettled = self._unsettled[:, settled:]
        self._ready_sum += int(counts.sum())
        self._ready_count += settled
        self._ready_last = int(counts[-1])
