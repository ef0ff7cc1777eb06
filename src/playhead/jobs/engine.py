"""What a job is, and what runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from playhead.errors import PlayheadError

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Job(Protocol[R_co]):
    """Some work of its own, with all that a worker needs to know; it travels.

    It may be done twice where a worker was lost, so its files are written whole or not at all.
    """

    @property
    def name(self) -> str:
        """What the work is on, human-readable."""

    def run(self) -> R_co:
        """Do it."""


@dataclass(frozen=True)
class Call(Generic[R]):
    """A function as a job; one that can be pickled travels."""

    name: str
    run: Callable[[], R]


J = TypeVar("J", bound=Job[Any])
Done = Callable[[J, Any], None]  # the job, and what it gave or the PlayheadError it failed with


class Engine(Protocol):
    """Where jobs are done.

    Jobs are taken only as there is room for them, so there may be any number. A failing job or a dying worker does
    not stop the rest.
    """

    def run(self, jobs: Iterable[J], done: Done[J]) -> None:
        """Do every job, calling `done` here for each, as they finish."""

    def close(self) -> None:
        """Let go of what `run` holds from one call to the next. It may run again."""


def outcome_of(job: Job[R]) -> R | PlayheadError:
    """A PlayheadError is a result; anything else is a bug and may end the run."""
    try:
        return job.run()
    except PlayheadError as error:
        return error
