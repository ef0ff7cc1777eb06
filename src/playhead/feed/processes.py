"""Workers as processes.

Workers take turns: the n-th piece of work goes to worker n mod N, which does its pieces in order, so results are in
order when they are received in turn. A dead worker is noticed where its result is awaited; the error names what it was
reading.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from itertools import cycle
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any, Literal

from playhead.errors import PlayheadError, SampleError, WorkerError
from playhead.feed.main_guard import PATIENCE_SECONDS, refuse_in_bootstrap, without_main_guard
from playhead.feed.pool import Results, ahead
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.tasks import Task, Work

StartMethod = Literal["spawn", "forkserver"]


class Processes:
    """A pool of worker processes that outlives iterations and dies with its owner."""

    def __init__(
        self,
        blueprint: Blueprint,
        workers: int,
        lookahead: int,
        describe: Callable[[Work], str],
        start_method: StartMethod = "spawn",
    ) -> None:
        self._blueprint, self._describe = blueprint, describe
        self._num_workers, self._depth = workers, workers * lookahead
        self._context = multiprocessing.get_context(start_method)
        self._workers: list[_Worker] = []

    def results(self, tasks: Iterator[Task]) -> Results:
        if not self._workers:
            self._start()
        turns = cycle(self._workers)

        def submit(work: Work) -> Callable[[], Produced]:
            worker = next(turns)
            worker.send(work)
            return worker.receive

        return ahead(tasks, self._depth, submit, self.close)

    def close(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close_pipe()
        for worker in workers:
            worker.join()

    def _start(self) -> None:
        refuse_in_bootstrap()
        self._blueprint.check_picklable()
        pickled = pickle.dumps(self._blueprint)
        self._workers = [_Worker(self._context, pickled, number, self._describe) for number in range(self._num_workers)]


class _Worker:
    """The owner's end of a worker process."""

    def __init__(self, context: BaseContext, pickled: bytes, number: int, describe: Callable[[Work], str]) -> None:
        self._number = number
        self._describe = describe
        self._pipe, worker_pipe = context.Pipe()
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(worker_pipe, pickled), name=f"playhead-worker-{number}", daemon=True
        )
        # A child inherits the mask: Ctrl-C while it still imports must not make it print a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        worker_pipe.close()
        self._under_way: deque[Work] = deque()

    def send(self, work: Work) -> None:
        self._under_way.append(work)
        try:
            self._pipe.send_bytes(work.to_bytes())
        except OSError as error:
            raise self._died() from error

    def receive(self) -> Produced:
        if not self._pipe.poll():
            wait([self._pipe, self._process.sentinel])
        try:
            if not self._pipe.poll():
                raise self._died()
            found = pickle.loads(self._pipe.recv_bytes())  # noqa: S301  # from our own worker
        except (EOFError, OSError) as error:
            raise self._died() from error
        self._under_way.popleft()
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def close_pipe(self) -> None:
        """Let the worker end: it does when its pipe is closed."""
        self._pipe.close()

    def join(self) -> None:
        """Wait for the process to end, and make it end where that takes too long."""
        self._process.join(PATIENCE_SECONDS)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(PATIENCE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _died(self) -> WorkerError:
        self._process.join(PATIENCE_SECONDS)
        code = self._process.exitcode
        if (unguarded := without_main_guard(code)) is not None:
            return unguarded
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        work = self._under_way[0] if self._under_way else None
        what = "nothing" if work is None else self._describe(work)
        problem = f"worker {self._number} (process {self._process.pid}) died with {how}"
        return worker_died(problem, f"it was making {what}")


def worker_died(problem: str, found: str) -> WorkerError:
    return WorkerError(
        problem,
        found=found,
        fix="look for a crash in the map or collate function, or for the system killing processes that use too "
        "much memory; resume from the last state: nothing delivered is lost",
    )


def _serve(connection: Connection, pickled: bytes) -> None:
    """What a worker process runs: make what is asked, in order, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns us
    inbox: SimpleQueue[Work] = SimpleQueue()
    # Listen before building: the owner may die meanwhile.
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    producer: Any = None
    failure: BaseException | None = None
    try:
        producer = pickle.loads(pickled).build()  # noqa: S301  # from our own parent
    except Exception as error:  # noqa: BLE001  # raised where the first result is awaited
        failure = _portable(error)
    while True:
        work = inbox.get()
        result: Any = failure
        if result is None:
            try:
                result = producer(work)
            except Exception as error:  # noqa: BLE001  # it is raised again where the result is awaited
                result = _portable(error)
        try:
            connection.send_bytes(_pickled(result, work))
        except OSError:
            os._exit(0)


def _listen(connection: Connection, inbox: SimpleQueue[Work]) -> None:
    """Take work as it comes, so that its sender never waits for a worker that waits for it to take a result."""
    while True:
        try:
            inbox.put(Work.from_bytes(connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(0)


def _pickled(result: Any, work: Work) -> bytes:
    try:
        return pickle.dumps(result, protocol=5)
    except Exception as error:  # noqa: BLE001  # pickling runs code of the user's classes
        place = f"step {work.request.step:,}, lane {work.request.lane}"
        problem = f"{place}: the batch cannot be sent from its worker process"
        found = f"{type(error).__name__}: {error}"
        fix = "return arrays, numbers, text and lists from `map` and `collate`, or use worker threads"
        return pickle.dumps(SampleError(problem, found=found, fix=fix), protocol=5)


def _portable(error: BaseException) -> BaseException:
    """The error itself where it can be pickled, else its message and the line that raised it."""
    if isinstance(error, PlayheadError):
        return error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"in {frame.filename}, line {frame.lineno}, in {frame.name}"
    return WorkerError(f"a worker raised {type(error).__name__}: {error}", found=place)
