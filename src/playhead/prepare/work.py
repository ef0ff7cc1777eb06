"""Many jobs: here, or in spawned processes. A failing job or a dying worker does not stop the rest."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from playhead.errors import PlayheadError, PrepareError
from playhead.formats import sidecar
from playhead.formats.contract import Format, Means, Shard
from playhead.formats.spec import Spec
from playhead.prepare.parts import Summary, write_part
from playhead.store import open_file

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Job(Protocol[R_co]):
    """Some work of its own, with all that a worker needs to know; it travels."""

    @property
    def name(self) -> str:
        """What the work is on, for people."""

    def run(self) -> R_co:
        """Do it."""


@dataclass(frozen=True)
class ScanJob:
    """One shard to scan into a part."""

    format: Format
    shard: Shard
    spec: Spec
    means: Means
    directory: Path

    @property
    def name(self) -> str:
        return self.shard.name

    def run(self) -> Summary:
        return write_part(self.format, self.shard, self.spec, self.means, self.directory)


J = TypeVar("J", bound=Job[Any])
Done = Callable[[J, Any], None]  # the job, and what it gave or the PlayheadError it failed with


def run_jobs(jobs: Iterable[J], workers: int, done: Done[J]) -> None:
    """Do every job, calling `done` here for each, as they finish.

    Jobs are taken from `jobs` only as workers come free, so there may be any number of them.
    """
    if workers <= 1:
        for job in jobs:
            done(job, _outcome(job))
        return
    queue = _Queue(iter(jobs))
    while queue.first is not None:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_die_with_parent) as pool:
            _feed(pool, queue, workers, done)


class _Queue(Generic[J]):
    """Jobs whose first can be looked at before it is taken."""

    def __init__(self, jobs: Iterator[J]) -> None:
        self._jobs = jobs
        self.first = next(jobs, None)

    def advance(self) -> None:
        self.first = next(self._jobs, None)


def _feed(pool: ProcessPoolExecutor, queue: _Queue[J], workers: int, done: Done[J]) -> None:
    """Keep as many jobs in flight as there are workers, so that a dead one leaves few in doubt."""
    flying: dict[Future[Any], J] = {}
    try:
        while flying or queue.first is not None:
            while queue.first is not None and len(flying) < workers:
                flying[pool.submit(_outcome, queue.first)] = queue.first
                queue.advance()
            finished, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome = future.result()
                done(flying.pop(future), outcome)
    except BrokenProcessPool:
        names = ", ".join(job.name for job in flying.values())
        for job in flying.values():
            done(job, _died(job, names))


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for ever: no end of file comes from a queue that it holds too."""
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


def _outcome(job: Job[R]) -> R | PlayheadError:
    """Errors of ours are results; anything else is a bug and may end the run."""
    try:
        return job.run()
    except PlayheadError as error:
        return error


def write_sidecars(format: Format, shard: Shard, means: Means) -> int:  # noqa: A002
    """Write the sidecars of a shard that are not there and valid; returns how many."""
    count = 0
    for path, pieces in format.sidecars(shard, means):
        with open_file(path) as file:
            present = sidecar.offsets_in(file, sidecar.sidecar_path(path, means.indexes_root)) is not None
        if not present:
            sidecar.write(path, pieces, means)
            count += 1
    return count
