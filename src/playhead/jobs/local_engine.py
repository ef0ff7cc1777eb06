"""Jobs in this process, in threads of it, or in spawned processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, Generic

from playhead.errors import PrepareError
from playhead.feed.main_guard import PATIENCE_SECONDS, refuse_in_bootstrap, without_main_guard
from playhead.jobs.engine import Done, J, Job, outcome_of


@dataclass(frozen=True)
class Local:
    """Processes on this machine; with one worker, this process does the work.

    `threads` suit jobs that share large arrays and spend their time in storage or in kernels that release the
    interpreter lock: nothing is copied to a worker, and jobs need not be pickled.
    """

    workers: int
    threads: bool = False

    def run(self, jobs: Iterable[J], done: Done[J]) -> None:
        if self.workers <= 1:
            for job in jobs:
                done(job, outcome_of(job))
            return
        if self.threads:
            with ThreadPoolExecutor(self.workers) as pool:
                _feed(pool, _Queue(iter(jobs)), self.workers, done)
            return
        refuse_in_bootstrap()
        queue = _Queue(iter(jobs))
        while queue.first is not None:
            spawn = multiprocessing.get_context("spawn")
            others = set(multiprocessing.active_children())
            with ProcessPoolExecutor(self.workers, mp_context=spawn, initializer=_begin_worker) as processes:
                try:
                    _feed(processes, queue, self.workers, done)
                except BaseException:  # an interrupt, or a bug: the caller does not wait for unfinished jobs
                    for process in set(multiprocessing.active_children()) - others:
                        process.kill()
                    raise

    def close(self) -> None:
        """Does nothing: no resources are kept."""


class _Queue(Generic[J]):
    """Jobs, the first of which can be inspected before it is taken."""

    def __init__(self, jobs: Iterator[J]) -> None:
        self._jobs = jobs
        self.first = next(jobs, None)

    def advance(self) -> None:
        self.first = next(self._jobs, None)


def _feed(pool: Executor, queue: _Queue[J], workers: int, done: Done[J]) -> None:
    """Keep as many jobs in flight as there are workers, so that a dead worker affects few of them."""
    flying: dict[Future[Any], J] = {}
    started: set[BaseProcess] = set()
    try:
        while flying or queue.first is not None:
            while queue.first is not None and len(flying) < workers:
                with _signals_wait():
                    flying[pool.submit(outcome_of, queue.first)] = queue.first
                queue.advance()
                started.update(multiprocessing.active_children())
            finished, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome = future.result()
                done(flying.pop(future), outcome)
    except BrokenProcessPool as error:
        for process in started:
            process.join(PATIENCE_SECONDS)
            if (unguarded := without_main_guard(process.exitcode)) is not None:
                raise unguarded from error
        names = ", ".join(job.name for job in flying.values())
        for job in flying.values():
            done(job, _died(job, names))


_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Start a worker with SIGINT blocked, which it inherits: its parent ends it.

    Python runs handlers in the main thread also while that thread blocks the signal, if another thread receives it. A
    worker whose start is interrupted prints a traceback, so handlers wait too.
    """
    pending: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _STOPPING if in_main}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, lambda received, _: pending.append(received))
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if pending:
        signal.raise_signal(pending[0])


def _begin_worker() -> None:
    """Exit when the parent is killed: a worker would wait forever, since it holds both ends of its queue."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _died(job: Job[Any], names: str) -> PrepareError:
    return PrepareError(
        f"{job.name}: not done, because a worker process was killed",
        found=f"in flight at that moment: {names}",
        fix="run it again; if it was the system short of memory, use fewer workers or less --memory",
    )


def default_workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
