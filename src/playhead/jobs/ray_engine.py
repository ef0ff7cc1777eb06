"""Jobs as tasks of a Ray cluster: an existing one, or one started temporarily on this machine."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from playhead.errors import PrepareError
from playhead.jobs.engine import Done, J, Job, outcome_of
from playhead.jobs.ray_connection import Connection, connect

MOST_TRIES = 4  # of a job whose worker is lost: a job that kills its workers must not be retried forever
_WAITING_FOR_EACH = 1  # one job queued beside the running one, so that a worker need not wait for this process
_SECONDS_TO_STOP = 3.0


class Ray:
    """The Ray cluster at an address (`auto`, `host:port`, `ray://host:port`); by default at RAY_ADDRESS.

    Without an address one is started on this machine, of `workers` processes, and stopped by `close`; a cluster that
    was there is left as it was. On a cluster that was there `workers` bounds the jobs in flight.

    A job whose worker or machine is lost is done again, three times at most; then it has failed, and the others go on.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._address, self._workers = address, workers
        self._connection: Connection | None = None

    def run(self, jobs: Iterable[J], done: Done[J]) -> None:
        queue = iter(jobs)
        first = next(queue, None)
        if first is None:
            return  # do not start a cluster without jobs
        if self._connection is None:
            self._connection = connect(self._address, self._workers)
        flight = _Flight[J]()
        try:
            flight.submit(first, 1)
            _feed(flight, queue, self._room, done)
        except BaseException as reason:
            connection = self._connection
            with suppress(Exception):  # report the reason to stop, not errors while stopping
                self._stop(flight, reason)
            connection.leave_if_terminated()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _stop(self, flight: _Flight[J], reason: BaseException) -> None:
        """End what is in flight. Tasks end with the connection that submitted them, so where this process is to end
        nothing is cancelled: Ray may abort a process in which a cancelled task ends by itself just then.
        """
        assert self._connection is not None
        if self._connection.owned and not isinstance(reason, Exception):
            self.close()
        else:
            flight.abandon()

    def _room(self) -> int:
        """Checked repeatedly: a cluster may grow."""
        if self._workers is not None:
            return self._workers
        assert self._connection is not None
        return self._connection.num_cpus() * (1 + _WAITING_FOR_EACH)


@dataclass(frozen=True)
class _Given:
    """The result of a task. `unable` is why a worker could not start, in a form that needs no Playhead there."""

    outcome: Any = None
    lost: str | None = None
    unable: tuple[str, str] | None = None


class _Flight(Generic[J]):
    """The jobs in flight, by the reference of their task, each with the number of this try."""

    def __init__(self) -> None:
        from importlib.metadata import version

        import ray

        # Ray's own retries have no bound where memory ran out.
        self._task = ray.remote(num_cpus=1, max_retries=0)(_portable())
        self._jobs: dict[Any, tuple[J, int]] = {}
        self._version = version("playhead")

    def __len__(self) -> int:
        return len(self._jobs)

    def submit(self, job: J, number: int) -> None:
        parcel = pickle.dumps((sys.path, str(Path.cwd()), pickle.dumps(job)))
        self._jobs[self._task.remote(parcel, self._version)] = job, number

    def land(self) -> Iterator[tuple[J, int, _Given]]:
        """The jobs that have finished, at least one."""
        import ray

        ready, _ = ray.wait(list(self._jobs), num_returns=1)
        for reference in ready:
            yield (*self._jobs.pop(reference), _get(reference))

    def abandon(self) -> None:
        """Interrupt the jobs in flight, so that partial files are removed."""
        import ray

        waiting = list(self._jobs)
        if not waiting or not ray.is_initialized():
            return
        for reference in waiting:
            ray.cancel(reference)
        ray.wait(waiting, num_returns=len(waiting), timeout=_SECONDS_TO_STOP)


def _feed(flight: _Flight[J], queue: Iterator[J], room: Callable[[], int], done: Done[J]) -> None:
    more = True
    while more or len(flight):
        bound = room()
        while more and len(flight) < bound:
            job = next(queue, None)
            more = job is not None
            if job is not None:
                flight.submit(job, 1)
        for job, number, given in flight.land() if len(flight) else ():
            if given.unable is not None:
                raise _unable(*given.unable)
            if given.lost is None:
                done(job, given.outcome)
            elif number < MOST_TRIES:
                flight.submit(job, number + 1)
            else:
                done(job, _lost(job, given.lost))


def _get(reference: Any) -> _Given:
    import ray
    from ray import exceptions

    losses = (
        exceptions.WorkerCrashedError,
        exceptions.OutOfMemoryError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.LocalRayletDiedError,
    )
    try:
        kind, value = ray.get(reference)
    except losses as error:
        return _Given(lost=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return _Given(unable=value) if kind == "unable" else _Given(outcome=value)


def _portable() -> Callable[[bytes, str], tuple[str, Any]]:
    """The task. A nested function is pickled by value, so a machine without Playhead can report that."""

    def task(parcel: bytes, version: str) -> tuple[str, Any]:
        import socket  # a function pickled by value brings no module along

        try:
            from importlib.metadata import version as version_of

            from playhead.jobs.ray_engine import outcome_of_parcel

            here = version_of("playhead")
        except ImportError as error:
            return "unable", (socket.gethostname(), str(error))
        if here != version:
            return "unable", (socket.gethostname(), f"Playhead {here} there, {version} here")
        return outcome_of_parcel(parcel)

    return task


def outcome_of_parcel(parcel: bytes) -> tuple[str, Any]:
    """The result of a task on a worker that has Playhead: ("outcome", ...), or ("unable", (machine, why)).

    The worker finds modules and relative paths as this process does, even if Ray was started long before.
    """
    paths, directory, packed = pickle.loads(parcel)  # noqa: S301 - of our own making, over Ray's own pickles
    sys.path.extend(path for path in paths if path not in sys.path)
    with suppress(OSError):
        os.chdir(directory)
    try:
        job = pickle.loads(packed)  # noqa: S301 - as above
    except ImportError as error:
        return "unable", (socket.gethostname(), str(error))
    return "outcome", outcome_of(job)


def _unable(machine: str, why: str) -> PrepareError:
    return PrepareError(
        f"the Ray worker on {machine} cannot run jobs of this Playhead",
        found=why,
        expected="the same packages on every machine of the cluster as here",
        fix="install them there, with your own formats and maps, or leave out --engine ray",
    )


def _lost(job: Job[Any], why: str) -> PrepareError:
    return PrepareError(
        f"{job.name}: not done, because its Ray worker was lost {MOST_TRIES} times",
        found=why,
        fix="run it again; if a machine was short of memory, use fewer workers or less --memory",
    )
