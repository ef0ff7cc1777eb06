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
import socket
import struct
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any, Literal

from playhead.errors import PlayheadError, SampleError, WorkerError
from playhead.feed.main_guard import PATIENCE_SECONDS, refuse_in_bootstrap, without_main_guard
from playhead.feed.pool import Results, ahead
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.segments import Arena, Segments
from playhead.feed.tasks import Task, Work
from playhead.feed.transport import pack, unpack

StartMethod = Literal["spawn", "forkserver"]

_SEGMENT = struct.Struct("=i")  # the message that a descriptor follows; work is longer


@dataclass(frozen=True)
class WorkerOptions:
    """How many processes, and how they work.

    Each has `lookahead` batches under way. `keep` lets them outlive an iteration. `timeout_seconds` bounds the wait for
    a batch; None: as long as it takes. `setup` is called in each before any work, with its number and how often the
    pool was started before.
    """

    num: int
    lookahead: int = 2
    start_method: str = "spawn"
    keep: bool = True
    timeout_seconds: float | None = None
    setup: Callable[[int, int], None] | None = None


class Processes:
    """A pool of worker processes that dies with its owner."""

    def __init__(self, blueprint: Blueprint, options: WorkerOptions, describe: Callable[[Work], str]) -> None:
        self._blueprint, self._options, self._describe = blueprint, options, describe
        self._workers: list[_Worker] = []
        self._segments: Segments | None = None
        self._num_starts = 0

    def results(self, tasks: Iterator[Task]) -> Results:
        options = self._options
        try:
            segments = self._start() if self._segments is None else self._segments
            turns = cycle(self._workers)

            def submit(work: Work) -> Callable[[], Produced]:
                worker = next(turns)
                worker.send(work)
                return lambda: worker.receive(segments)

            for worker in self._workers:
                worker.drop_results(segments)
            yield from ahead(tasks, options.num * options.lookahead, submit)
        except GeneratorExit:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            if not options.keep:
                self.close()

    def close(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.close_pipe()
        for worker in workers:
            worker.join()
        if self._segments is not None:
            self._segments.close()
        self._segments = None

    def _start(self) -> Segments:
        refuse_in_bootstrap()
        self._blueprint.check_picklable()
        options = self._options
        pickled = pickle.dumps((self._blueprint, options.setup, self._num_starts))
        self._num_starts += 1
        context = multiprocessing.get_context(options.start_method)
        worker_free, free = context.Pipe(duplex=False)
        self._segments = Segments(options.num, options.lookahead, free, self._announce)
        with worker_free:
            for number in range(options.num):
                args = (pickled, number, worker_free)
                self._workers.append(_Worker(context, args, free, options.timeout_seconds, self._describe))
        for _ in range(options.num * options.lookahead):
            self._segments.add()
        return self._segments

    def _announce(self, number: int, descriptor: int) -> None:
        for worker in self._workers:
            worker.announce(number, descriptor)


class _Worker:
    """The owner's end of a worker process."""

    def __init__(
        self,
        context: BaseContext,
        args: tuple[bytes, int, Connection],
        free: Connection,
        timeout_seconds: float | None,
        describe: Callable[[Work], str],
    ) -> None:
        self._number, self._timeout_seconds, self._describe = args[1], timeout_seconds, describe
        self._pipe, worker_pipe = context.Pipe()
        # A forked child has the owner's ends of its pipes, too, and would never see them closed.
        inherited = (self._pipe, free) if context.get_start_method() == "fork" else ()
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(worker_pipe, *args, inherited), name=f"playhead-worker-{self._number}", daemon=True
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

    def announce(self, number: int, descriptor: int) -> None:
        """Send the descriptor of a new segment of shared memory."""
        try:
            self._pipe.send_bytes(_SEGMENT.pack(number))
            with socket.socket(fileno=os.dup(self._pipe.fileno())) as stream:
                socket.send_fds(stream, [b"!"], [descriptor])
        except OSError as error:
            raise self._died() from error

    def receive(self, segments: Segments) -> Produced:
        found = unpack(self._message(segments), segments)
        self._under_way.popleft()
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def drop_results(self, segments: Segments) -> None:
        """Receive what an iteration left in the middle had asked for."""
        while self._under_way:
            unpack(self._message(segments), segments)
            self._under_way.popleft()

    def _message(self, segments: Segments) -> bytes:
        if not self._pipe.poll():
            segments.ensure_progress()
            if not wait([self._pipe, self._process.sentinel], self._timeout_seconds):
                raise self._took_too_long()
        try:
            if not self._pipe.poll():
                raise self._died()
            return self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._died() from error

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
        return worker_died(f"worker {self._number} (process {self._process.pid}) died with {how}", self._making())

    def _took_too_long(self) -> WorkerError:
        return WorkerError(
            f"worker {self._number} (process {self._process.pid}) took too long",
            found=f"no batch within {self._timeout_seconds:g} s; {self._making()}",
            fix="look for what the map, the collate function or the storage waits for, or raise `timeout`",
        )

    def _making(self) -> str:
        return f"it was making {self._describe(self._under_way[0]) if self._under_way else 'nothing'}"


def worker_died(problem: str, found: str) -> WorkerError:
    return WorkerError(
        problem,
        found=found,
        fix="look for a crash in the map or collate function, or for the system killing processes that use too "
        "much memory; resume from the last state: nothing delivered is lost",
    )


def _serve(
    connection: Connection, pickled: bytes, number: int, free: Connection, inherited: tuple[Connection, ...]
) -> None:
    """What a worker process runs: make what is asked, in order, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns us
    for other in inherited:
        other.close()
    inbox: SimpleQueue[Work] = SimpleQueue()
    arena = Arena(free)
    # Listen before building: the owner may die meanwhile.
    threading.Thread(target=_listen, args=(connection, inbox, arena), daemon=True).start()
    producer: Any = None
    failure: BaseException | None = None
    try:
        blueprint, setup, num_starts = pickle.loads(pickled)  # noqa: S301  # from our own parent
        if setup is not None:
            setup(number, num_starts)
        producer = blueprint.build()
    except Exception as error:  # noqa: BLE001  # raised where the first result is awaited
        failure = _portable(error)
    while True:
        work = inbox.get()
        result: Any = failure
        if result is None:
            try:
                result = producer(work, arena.empty)
            except Exception as error:  # noqa: BLE001  # it is raised again where the result is awaited
                arena.clear()
                result = _portable(error)
        try:
            connection.send_bytes(_message(result, work, arena))
        except OSError:
            os._exit(0)
        del result  # its arrays are the owner's now


def _listen(connection: Connection, inbox: SimpleQueue[Work], arena: Arena) -> None:
    """Take work as it comes, so that its sender never waits for a worker that waits for it to take a result."""
    try:
        while True:
            data = connection.recv_bytes()
            if len(data) > _SEGMENT.size:
                inbox.put(Work.from_bytes(data))
                continue
            with socket.socket(fileno=os.dup(connection.fileno())) as stream:
                (number,) = _SEGMENT.unpack(data)
                arena.announced(number, socket.recv_fds(stream, 1, 1)[1][0])
    except (EOFError, OSError, IndexError):
        os._exit(0)


def _message(result: Any, work: Work, arena: Arena) -> bytes:
    try:
        return pack(result, arena)
    except Exception as error:  # noqa: BLE001  # pickling runs code of the user's classes
        place = f"step {work.request.step:,}, lane {work.request.lane}"
        problem = f"{place}: the batch cannot be sent from its worker process"
        found = f"{type(error).__name__}: {error}"
        fix = "return arrays, numbers, text and lists from `map` and `collate`, or use worker threads"
        return pack(SampleError(problem, found=found, fix=fix), arena)


def _portable(error: BaseException) -> BaseException:
    """The error itself where it can be pickled, else its message and the line that raised it."""
    if isinstance(error, PlayheadError):
        return error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"in {frame.filename}, line {frame.lineno}, in {frame.name}"
    return WorkerError(f"a worker raised {type(error).__name__}: {error}", found=place)
