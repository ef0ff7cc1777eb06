"""Jobs, and the engines that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from playhead.errors import PlayheadError

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Job(Protocol[R_co]):
    """A unit of work with everything a worker needs; it can be pickled.

    It may run twice if a worker is lost, so its files are written atomically.
    """

    @property
    def name(self) -> str:
        """A human-readable name of the work."""

    def run(self) -> R_co:
        """Do it."""


@dataclass(frozen=True)
class Call(Generic[R]):
    """A function as a job."""

    name: str
    run: Callable[[], R]


J = TypeVar("J", bound=Job[Any])
Done = Callable[[J, Any], None]  # the job, and its result or the PlayheadError it failed with


class Engine(Protocol):
    """Runs jobs.

    Jobs are taken only when a worker is free, so there may be any number. A failing job or a dying worker does not
    stop the rest.
    """

    def run(self, jobs: Iterable[J], done: Done[J]) -> None:
        """Run every job, calling `done` in this process for each as it finishes."""

    def close(self) -> None:
        """Release resources that `run` keeps between calls. It may run again."""


def outcome_of(job: Job[R]) -> R | PlayheadError:
    """A PlayheadError is a result; any other exception is a bug and may end the run."""
    try:
        return job.run()
    except PlayheadError as error:
        return error
