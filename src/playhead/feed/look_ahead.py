"""Look-ahead inside a worker: threads fetch the bytes of queued work while the work before it is decoded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

from playhead.feed.produce import FetchedWork
from playhead.feed.tasks import Work

MOST_THREADS = 4  # of a worker, unless more are asked for


def default_threads(lookahead: int) -> int:
    """How many threads fetch ahead in a worker that has `lookahead` batches in progress."""
    return min(lookahead, MOST_THREADS)


class Queued(NamedTuple):
    """Work in the queue of a worker; `take` waits for what was fetched, None if no thread has begun with it."""

    work: Work
    take: Callable[[], FetchedWork | None]


class LookAhead:
    """The threads of one worker. Work is fetched in the order in which it is added, from `start` on.

    Laws: nothing is fetched twice; what a thread raises is raised where the work is taken. It never calls a map.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._early: list[_Fetching] | None = []  # added before the start
        self._threads: ThreadPoolExecutor | None = None
        self._fetch: Callable[[Work], FetchedWork] | None = None

    def start(self, fetch: Callable[[Work], FetchedWork] | None, num_threads: int) -> None:
        """Begin to fetch, by this function. Without it, or without threads, nothing is ever fetched ahead."""
        with self._lock:
            early, self._early = self._early, None
            if fetch is None or not num_threads:
                return
            self._fetch, self._threads = fetch, ThreadPoolExecutor(num_threads, thread_name_prefix="playhead-fetch")
            for fetching in early or ():
                fetching.future = self._threads.submit(fetch, fetching.work)

    def add(self, work: Work) -> Queued:
        with self._lock:
            if self._threads is not None and self._fetch is not None:
                return Queued(work, _Fetching(work, self._threads.submit(self._fetch, work)).take)
            if self._early is None:
                return Queued(work, _nothing)
            self._early.append(_Fetching(work))
            return Queued(work, self._early[-1].take)

    def close(self) -> None:
        """Drop what is queued, and wait for what is being fetched."""
        with self._lock:
            threads, self._threads, self._early = self._threads, None, None
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)


class _Fetching:
    """Work that is fetched, or will be."""

    def __init__(self, work: Work, future: Future[FetchedWork] | None = None) -> None:
        self.work, self.future = work, future

    def take(self) -> FetchedWork | None:
        future, self.future = self.future, None
        if future is None or future.cancel():
            return None
        return future.result()


def _nothing() -> None:
    """Nothing is fetched ahead."""
