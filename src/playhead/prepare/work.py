"""Scanning many shards: here, or in spawned processes. A failing shard or a dying worker does not stop the rest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import PlayheadError, PrepareError
from playhead.formats import sidecar
from playhead.formats.contract import Format, Means, Shard
from playhead.formats.spec import Spec
from playhead.prepare.parts import Summary, write_part
from playhead.store import open_file


@dataclass(frozen=True)
class Job:
    """One shard to scan into a part, with all that a worker needs to know."""

    format: Format
    shard: Shard
    spec: Spec
    means: Means
    directory: Path


Done = Callable[[Job, Summary | PlayheadError], None]


def run_jobs(jobs: Sequence[Job], workers: int, done: Done) -> None:
    """Scan every shard, calling `done` here for each, as they finish."""
    if workers <= 1:
        for job in jobs:
            done(job, _outcome(job))
        return
    waiting = list(reversed(jobs))
    while waiting:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            _feed(pool, waiting, workers, done)


def _feed(pool: ProcessPoolExecutor, waiting: list[Job], workers: int, done: Done) -> None:
    """Keep as many jobs in flight as there are workers, so that a dead one leaves few in doubt."""
    flying: dict[Future[Summary | PlayheadError], Job] = {}
    try:
        while waiting or flying:
            while waiting and len(flying) < workers:
                flying[pool.submit(_outcome, waiting[-1])] = waiting[-1]
                waiting.pop()
            finished, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome = future.result()
                done(flying.pop(future), outcome)
    except BrokenProcessPool:
        names = ", ".join(job.shard.name for job in flying.values())
        for job in flying.values():
            done(job, _died(job, names))


def _died(job: Job, names: str) -> PrepareError:
    return PrepareError(
        f"{job.shard.name}: not scanned, because a worker process was killed",
        found=f"in flight at that moment: {names}",
        fix="run it again; if it was the system short of memory, use fewer workers or less --memory",
    )


def _outcome(job: Job) -> Summary | PlayheadError:
    """Errors of ours are results; anything else is a bug and may end the run."""
    try:
        return write_part(job.format, job.shard, job.spec, job.means, job.directory)
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
