"""Workers as processes: the owner's side.

Work is dealt in turn: item n goes to worker n mod N, and each worker does its items in order, so results received in
turn are in order. A dead worker is noticed where its result is awaited; the error names what it was reading. A worker
exits when its pipe is closed, by the owner or by the owner's exit: forks of the owner keep no end of it open.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from multiprocessing import forkserver, process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Literal
from weakref import WeakValueDictionary

from playhead.errors import WorkerError
from playhead.feed.main_guard import PATIENCE_SECONDS, refuse_in_bootstrap, without_main_guard
from playhead.feed.pool import Results, ahead
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.shared_memory import SharedBuffers, out_of_resources
from playhead.feed.tasks import Task, Work
from playhead.feed.transport import unpack
from playhead.feed.worker import BUFFER, Instructions, serve, socket_of
from playhead.store import stores_were_read

StartMethod = Literal["spawn", "forkserver"]


@dataclass(frozen=True)
class WorkerOptions:
    """The number of worker processes and their options.

    Each prepares `lookahead` batches ahead. `keep` lets them outlive an iteration. `timeout_seconds` limits the wait
    for a batch; None waits without limit. `setup` is called in each before any work, with its number and how often the
    pool was started before. Where storage is remote, `fetch_threads` in each fetch the bytes of batches ahead.
    `may_spawn`: nobody has chosen `start_method`, so workers that could read nothing as forks are spawned.
    """

    num: int
    lookahead: int = 2
    start_method: str = "spawn"
    keep: bool = True
    timeout_seconds: float | None = None
    setup: Callable[[int, int], None] | None = None
    fetch_threads: int = 0
    may_spawn: bool = False


class Processes:
    """A pool of worker processes that exit with their owner. A fork of the owner has none until it starts its own."""

    def __init__(self, blueprint: Blueprint, options: WorkerOptions, describe: Callable[[Work], str]) -> None:
        self._blueprint, self._options, self._describe = blueprint, options, describe
        self._workers: list[_Worker] = []
        self._buffers: SharedBuffers | None = None
        self._num_starts = 0
        _POOLS[id(self)] = self

    def results(self, tasks: Iterator[Task]) -> Results:
        options = self._options
        try:
            buffers = self._start() if self._buffers is None else self._buffers
            turns = cycle(self._workers)

            def submit(work: Work) -> Callable[[], Produced]:
                worker = next(turns)
                worker.send(work)
                return lambda: worker.receive(buffers)

            for worker in self._workers:
                worker.drop_results(buffers)
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
            worker.hang_up()
        _end([worker.process for worker in workers if worker.process.pid is not None])
        if self._buffers is not None:
            self._buffers.close()
        self._buffers = None

    def forked(self, *, in_child: bool) -> None:
        """Call after a fork, in both processes: the workers belong to the parent."""
        if self._buffers is not None:
            self._buffers.forked(in_child=in_child)
        if in_child:
            workers, self._workers, self._buffers = self._workers, [], None
            for worker in workers:
                worker.disown()

    def _start(self) -> SharedBuffers:
        refuse_in_bootstrap()
        _refuse_in_daemon()
        options = self._options
        instructions: Instructions | bytes = (
            self._blueprint,
            options.setup,
            self._num_starts,
            options.fetch_threads,
        )
        method = options.start_method
        if method != "fork":
            self._blueprint.check_picklable()
            instructions = pickle.dumps(instructions)
        elif options.may_spawn and stores_were_read():
            with suppress(Exception):  # of functions that cannot be sent: a fork is refused where it reads a store
                instructions, method = pickle.dumps(instructions), "spawn"
        self._num_starts += 1
        context = multiprocessing.get_context(method)
        try:
            # Before any worker starts: this unblocks SIGINT, which a worker would otherwise inherit unblocked.
            if method == "spawn":
                resource_tracker.ensure_running()
            elif method == "forkserver":
                forkserver.ensure_running()
            worker_free, free = os.pipe()
            self._buffers = SharedBuffers(options.num, options.lookahead, free, self._announce)
            with Connection(worker_free, writable=False) as worker_end:
                for number in range(options.num):
                    args = (instructions, number, worker_end)
                    self._workers.append(_Worker(context, args, options.timeout_seconds, self._describe))
                    self._workers[-1].start()  # a fork closes the owner's ends of all workers that are in the list
        except OSError as error:
            raise out_of_resources("worker processes cannot be started", error) from error
        self._buffers.prepare_to_wait()
        return self._buffers

    def _announce(self, number: int, descriptor: int | None) -> None:
        for worker in self._workers:
            worker.announce(number, descriptor)


_POOLS: WeakValueDictionary[int, Processes] = WeakValueDictionary()


def _forked(in_child: bool) -> None:
    for reference in _POOLS.valuerefs():
        pool = reference()
        if pool is not None:
            pool.forked(in_child=in_child)


os.register_at_fork(after_in_parent=partial(_forked, False), after_in_child=partial(_forked, True))


class _Worker:
    """A worker process as its owner sees it."""

    def __init__(
        self,
        context: BaseContext,
        args: tuple[Instructions | bytes, int, Connection],
        timeout_seconds: float | None,
        describe: Callable[[Work], str],
    ) -> None:
        self._number, self._timeout_seconds, self._describe = args[1], timeout_seconds, describe
        self._pipe, self._worker_pipe = context.Pipe()
        self._socket = socket_of(self._pipe)
        self._is_forked = context.get_start_method() == "fork"
        self._pending: deque[Work] = deque()
        name = f"playhead-worker-{self._number}"
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=serve, args=(self._worker_pipe, *args), name=name, daemon=True
        )

    def start(self) -> None:
        # A child inherits the mask. Ctrl-C while it still imports must not make it print a traceback, and a fork must
        # not run its owner's handler of SIGTERM.
        blocked = {signal.SIGINT, signal.SIGTERM} if self._is_forked else {signal.SIGINT}
        with _interrupts_held_back():
            before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
            try:
                self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._worker_pipe.close()

    def send(self, work: Work) -> None:
        self._pending.append(work)
        try:
            self._pipe.send_bytes(work.to_bytes())
        except OSError as error:
            raise self._died() from error

    def announce(self, number: int, descriptor: int | None) -> None:
        """Send the number of a shared buffer, with its descriptor if it is new; None means that it is retired."""
        try:
            self._pipe.send_bytes(BUFFER.pack(number, descriptor is not None))
            if descriptor is not None:
                socket.send_fds(self._socket, [b"!"], [descriptor])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died() from error
        except OSError as error:
            raise out_of_resources("shared memory cannot be sent to worker processes", error) from error

    def receive(self, buffers: SharedBuffers) -> Produced:
        found = unpack(self._message(buffers), buffers)
        self._pending.popleft()
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def drop_results(self, buffers: SharedBuffers) -> None:
        """Receive and drop the results that an unfinished iteration had requested."""
        while self._pending:
            unpack(self._message(buffers), buffers)
            self._pending.popleft()

    def _message(self, buffers: SharedBuffers) -> bytes:
        buffers.prepare_to_wait()
        if not self._pipe.poll() and not wait([self._pipe, self.process.sentinel], self._timeout_seconds):
            raise self._took_too_long()
        try:
            if not self._pipe.poll():
                raise self._died()
            return self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._died() from error

    def hang_up(self) -> None:
        """Let the worker exit: shut the pipe down, since other processes may have it open, too."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._close_ends()

    def disown(self) -> None:
        """Release the worker in a fork of its owner: it exits with the owner, not with the fork."""
        self._close_ends()
        getattr(process, "_children", set()).discard(self.process)  # multiprocessing terminates these at exit

    def _close_ends(self) -> None:
        self._socket.close()
        with suppress(OSError):  # garbage collection may have closed it already
            self._pipe.close()

    def _died(self) -> WorkerError:
        self.process.join(PATIENCE_SECONDS)
        code = self.process.exitcode
        if (unguarded := without_main_guard(code)) is not None:
            return unguarded
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return WorkerError(
            f"worker {self._number} (process {self.process.pid}) died with {how}",
            found=self._making(),
            fix="look for a crash in the map or collate function, or for the system killing processes that use too "
            "much memory; resume from the last state: nothing delivered is lost",
        )

    def _took_too_long(self) -> WorkerError:
        return WorkerError(
            f"worker {self._number} (process {self.process.pid}) took too long",
            found=f"no batch within {self._timeout_seconds:g} s; {self._making()}",
            fix="find what the map, the collate function or the storage waits for, or raise `timeout`",
        )

    def _making(self) -> str:
        return f"it was making {self._describe(self._pending[0]) if self._pending else 'nothing'}"


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Handle Ctrl-C only afterwards: a worker whose owner stops halfway through its start prints a traceback.

    Blocking the signal does not do that: threads of numerical libraries receive it all the same, and Python then runs
    its handler in the main thread.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        handler(*held[0])


def _end(workers: list[BaseProcess]) -> None:
    """Wait for all processes to exit; terminate, then kill, those that take too long."""
    for stop in (None, BaseProcess.terminate, BaseProcess.kill):
        deadline = time.monotonic() + PATIENCE_SECONDS
        alive = [worker for worker in workers if worker.is_alive()]
        for worker in alive:
            if stop is not None:
                stop(worker)
        for worker in alive:
            worker.join(None if stop is BaseProcess.kill else max(0.0, deadline - time.monotonic()))
    for worker in workers:
        worker.close()


def _refuse_in_daemon() -> None:
    current = multiprocessing.current_process()
    if current.daemon:
        raise WorkerError(
            "worker processes cannot be started here: a daemonic process may not have children",
            found=f"process {current.name!r}, which was started with daemon=True",
            fix="start it with daemon=False, or use no workers there, or worker threads",
        )
