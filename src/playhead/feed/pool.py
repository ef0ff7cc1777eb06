"""Work done ahead, results in order: in this process or in threads (worker processes are in `processes.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol

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
    """Workers as threads that share one producer: suits maps that wait or release the interpreter lock."""

    def __init__(self, blueprint: Blueprint, workers: int, lookahead: int) -> None:
        self._blueprint = blueprint
        self._workers, self._depth = workers, workers * lookahead
        self._executor: ThreadPoolExecutor | None = None
        self._producer: Producer | None = None
        self._memory = Recycled()

    def results(self, tasks: Iterator[Task]) -> Results:
        producer = self._producer = self._producer or self._blueprint.build()
        empty = self._memory.empty
        executor = self._executor = self._executor or ThreadPoolExecutor(self._workers, thread_name_prefix="playhead")
        try:
            yield from ahead(tasks, self._depth, lambda work: executor.submit(producer, work, empty).result)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = self._producer = None
        self._memory = Recycled()


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
