"""Work done ahead, results in order: here, in threads, or in processes.

A pool takes work with `submit` and gives results back with `result`, first in, first out.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from playhead.feed.produce import Blueprint, Produced
from playhead.feed.tasks import Work


class Pool(Protocol):
    def submit(self, work: Work) -> None:
        """Take work; never blocks for long."""

    def result(self) -> Produced:
        """The result of the oldest work that has not been given back."""

    def close(self) -> None:
        """Drop what is under way and leave nothing behind."""


class Inline:
    """No workers: work is done when its result is asked for."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._producer = blueprint.build()
        self._waiting: deque[Work] = deque()

    def submit(self, work: Work) -> None:
        self._waiting.append(work)

    def result(self) -> Produced:
        return self._producer(self._waiting.popleft())

    def close(self) -> None:
        self._waiting.clear()


class Threads:
    """Workers as threads that share one producer: right for maps that wait or let go of the interpreter lock."""

    def __init__(self, blueprint: Blueprint, workers: int) -> None:
        self._producer = blueprint.build()
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="playhead")
        self._waiting: deque[Future[Produced]] = deque()

    def submit(self, work: Work) -> None:
        self._waiting.append(self._executor.submit(self._producer, work))

    def result(self) -> Produced:
        return self._waiting.popleft().result()

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._waiting.clear()
