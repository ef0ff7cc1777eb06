"""Work done ahead, results in order: in this process or in threads (worker processes are in `processes.py`)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Protocol

from playhead.feed.look_ahead import LookAhead, Queued
from playhead.feed.produce import Blueprint, Produced, Producer
from playhead.feed.recycled import Recycled
from playhead.feed.tasks import Task, Work

Results = Generator[tuple[Task, Produced], None, None]


class Pool(Protocol):
    """Makes micro-batches, for one iteration at a time."""

    def results(self, tasks: Iterator[Task]) -> Results:
        """Every task with its result, in order. How many tasks are taken ahead is up to the pool.

        Closing the generator drops unfinished work.
        """

    def close(self) -> None:
        """End the workers, between iterations. The next `results` starts new ones."""


class Inline:
    """No workers: work is done when its result is asked for."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._producer: Producer | None = None

    def results(self, tasks: Iterator[Task]) -> Results:
        producer = self._producer = self._producer or self._blueprint.build()
        for task in tasks:
            yield task, producer(task.work)

    def close(self) -> None:
        self._producer = None


class Threads:
    """Workers as threads that share one producer: suits maps that wait or release the interpreter lock.

    For each of them `fetch_threads` others fetch ahead, where storage is remote.
    """

    def __init__(self, blueprint: Blueprint, workers: int, lookahead: int, fetch_threads: int = 0) -> None:
        self._blueprint = blueprint
        self._workers, self._depth, self._fetch_threads = workers, workers * lookahead, workers * fetch_threads
        self._executor: ThreadPoolExecutor | None = None
        self._look_ahead: LookAhead | None = None
        self._producer: Producer | None = None
        self._memory = Recycled()

    def results(self, tasks: Iterator[Task]) -> Results:
        producer = self._producer = self._producer or self._blueprint.build()
        empty = self._memory.empty
        executor, look_ahead = self._threads(producer)

        def make(queued: Queued) -> Produced:
            return producer(queued.work, empty, _THREAD.number, queued.take)

        try:
            yield from ahead(tasks, self._depth, lambda work: executor.submit(make, look_ahead.add(work)).result)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        if self._look_ahead is not None:
            self._look_ahead.close()
        self._executor = self._look_ahead = self._producer = None
        self._memory = Recycled()

    def _threads(self, producer: Producer) -> tuple[ThreadPoolExecutor, LookAhead]:
        if self._executor is None or self._look_ahead is None:
            numbers = count()
            self._executor = ThreadPoolExecutor(
                self._workers, thread_name_prefix="playhead", initializer=lambda: _THREAD.take(numbers)
            )
            self._look_ahead = LookAhead()
            self._look_ahead.start(producer.fetch if producer.looks_ahead else None, self._fetch_threads)
        return self._executor, self._look_ahead


class _Thread(threading.local):
    """The number of the worker that the current thread is."""

    number = 0

    def take(self, numbers: Iterator[int]) -> None:
        self.number = next(numbers)


_THREAD = _Thread()


def ahead(tasks: Iterator[Task], depth: int, submit: Callable[[Work], Callable[[], Produced]]) -> Results:
    """The tasks with their results, in order, with `depth` of them in progress.

    `submit` begins work and returns a function that waits for its result. Law: no yielded result is kept.
    """
    waiting = deque((task, submit(task.work)) for task in islice(tasks, depth))
    ready: deque[tuple[Task, Produced]] = deque()
    while waiting:
        task, result = waiting.popleft()
        ready.append((task, result()))
        del result
        waiting.extend((task, submit(task.work)) for task in islice(tasks, 1))
        yield ready.popleft()
