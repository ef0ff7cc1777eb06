"""Storage read by several processes at once for a moment: how many bytes, how fast, how long each request took.

Readers are processes of their own, as workers are, so that what one process can take is kept apart from what the
storage gives to all. They only read, and never more bytes or longer than they are asked to.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from playhead.errors import PlayheadError, WorkerError
from playhead.store import Files, Ranges, Stamp

_BEGIN_SECONDS = 0.05  # for a job to reach every reader before they all begin
_PATIENCE_SECONDS = 60.0


class FileSpan(NamedTuple):
    """Some bytes of a file that are read with one request."""

    path: str
    stamp: Stamp
    first: int
    end: int


@dataclass(frozen=True)
class ReadJob:
    """What a reader reads, with how many threads, from a moment (of `time.monotonic`) until it may read no more."""

    pieces: tuple[FileSpan, ...]
    threads: int
    begin: float
    seconds: float
    max_bytes: int


@dataclass(frozen=True)
class ReadResult:
    """What a reader has read: bytes, the seconds of each request, the seconds in all, and its processor time."""

    num_bytes: int
    latencies: tuple[float, ...]
    seconds: float
    cpu_seconds: float


class Readers:
    """Processes that wait for jobs; more are started when they are needed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._running: list[tuple[BaseProcess, Connection]] = []

    def run(self, jobs: Sequence[ReadJob]) -> list[ReadResult]:
        """Give each job to a reader; all begin together."""
        self._start(len(jobs))
        begin = time.monotonic() + _BEGIN_SECONDS
        chosen = self._running[: len(jobs)]
        for job, (_, pipe) in zip(jobs, chosen, strict=True):
            pipe.send(ReadJob(job.pieces, job.threads, begin, job.seconds, job.max_bytes))
        return [_received(*reader) for reader in chosen]

    def close(self) -> None:
        for _, pipe in self._running:
            pipe.close()
        for process, _ in self._running:
            process.join(1.0)
            if process.is_alive():
                process.terminate()
                process.join()
        self._running = []

    def _start(self, num: int) -> None:
        context = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # it unblocks SIGINT, which a reader would inherit
        new = range(len(self._running), num)
        for number in new:
            ours, theirs = context.Pipe()
            name = f"playhead-reader-{number}"
            process = context.Process(target=_serve, args=(theirs, self._files), name=name, daemon=True)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is handled by the owner
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            self._running.append((process, ours))
        for number in new:
            _received(*self._running[number])  # it has started


@contextmanager
def readers_of(files: Files) -> Iterator[Readers]:
    readers = Readers(files)
    try:
        yield readers
    finally:
        readers.close()


def _received(process: BaseProcess, pipe: Connection) -> ReadResult:
    try:
        found = pipe.recv() if pipe.poll(_PATIENCE_SECONDS) else None
    except EOFError:
        process.join(1.0)
        raise WorkerError(
            f"a reader (process {process.pid}) died",
            found=f"exit code {process.exitcode}",
            fix="look for the system killing processes that use too much memory",
        ) from None
    if found is None:
        raise WorkerError(
            f"a reader (process {process.pid}) does not answer",
            found=f"nothing within {_PATIENCE_SECONDS:g} s",
            fix="see whether the storage answers at all",
        )
    if isinstance(found, PlayheadError):
        raise found
    return found  # type: ignore[no-any-return]


def _serve(pipe: Connection, files: Files) -> None:
    """The main function of a reader: jobs until the pipe is closed."""
    nothing = ReadResult(0, (), 0.0, 0.0)
    try:
        pipe.send(nothing)
        while True:
            job = pipe.recv()
            try:
                pipe.send(read_job(files, job))
            except PlayheadError as error:
                pipe.send(error)
    except (EOFError, OSError):  # the owner has closed the pipe, or is gone
        return


def read_job(files: Files, job: ReadJob) -> ReadResult:
    """Do a job in this process."""
    time.sleep(max(0.0, job.begin - time.monotonic()))
    began, cpu = time.monotonic(), time.process_time()
    if job.threads == 1:
        parts = [_read(files, job, 0)]
    else:
        with ThreadPoolExecutor(job.threads) as threads:
            parts = [*threads.map(lambda number: _read(files, job, number), range(job.threads))]
    latencies = tuple(seconds for _, found in parts for seconds in found)
    took = time.monotonic() - began
    return ReadResult(sum(size for size, _ in parts), latencies, took, time.process_time() - cpu)


def _read(files: Files, job: ReadJob, number: int) -> tuple[int, list[float]]:
    """The part of one thread: its pieces, and the seconds that each took."""
    most, deadline = job.max_bytes / job.threads, job.begin + job.seconds
    size = 0
    latencies: list[float] = []
    for piece in job.pieces[number :: job.threads]:
        before = time.monotonic()
        if latencies and (before >= deadline or size >= most):
            break
        files.read(piece.path, piece.stamp, Ranges([piece.first], [piece.end]))
        latencies.append(time.monotonic() - before)
        size += piece.end - piece.first
    return size, latencies
