"""Every mistake a user can make, as a tree of exceptions.

    PlayheadError
    ├── RecipeError        the recipe says something that cannot be done
    ├── DataError          a file is missing, or what it holds is broken
    ├── StoreError         the storage failed, or a file is not what it was when indexed: never a bad sample
    ├── NotPreparedError   an index is missing or older than the recipe: run `playhead prepare`
    ├── WorldSizeError     the number of ranks does not fit the lanes
    ├── EndOfStreamError   a step past the end of a finite stream was asked for
    ├── StateError         a saved state is broken, or of another stream
    ├── SampleError        a sample could not be read, mapped or batched
    ├── WorkerError        a worker process died
    └── PrepareError       preparing could not finish; lists what failed

Each message says what is wrong, what was found, what was expected, what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import Self

_SHOWN_FAILURES = 20


class PlayheadError(Exception):
    """Something the user can fix. `problem` says what and where; the rest is optional."""

    def __init__(
        self,
        problem: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.problem = problem
        self.found = found
        self.expected = expected
        self.fix = fix
        super().__init__(self.message())

    def message(self) -> str:
        lines = [self.problem]
        labelled = (("found", self.found), ("expected", self.expected), ("to fix", self.fix))
        lines += [f"  {label:<9} {text}" for label, text in labelled if text is not None]
        return "\n".join(lines)

    def at(self, place: str) -> Self:
        """The same error with where it happened in front of its problem, unless that says so already."""
        if place not in self.problem:
            self.problem = f"{place}: {self.problem}"
            self.args = (self.message(),)
        return self

    def at_row(self, row: str, place: str) -> Self:
        """The same error with a row and, unless its problem names it already, where that row is."""
        return self.at(row if place in self.problem else f"{row} ({place})")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled with all fields, so that errors arrive whole from worker processes."""
        return _rebuild, (type(self), self.problem, self.found, self.expected, self.fix)


def _rebuild(
    kind: type[PlayheadError],
    problem: str,
    found: str | None,
    expected: str | None,
    fix: str | None,
) -> PlayheadError:
    return kind(problem, found=found, expected=expected, fix=fix)


class RecipeError(PlayheadError):
    """The recipe says something that cannot be done."""


class DataError(PlayheadError):
    """A file is missing, or what it holds is broken."""


class StoreError(PlayheadError):
    """The storage failed: a shard that is not what it was when it was indexed, no descriptors or memory left, or a disk
    that does not answer.

    It says nothing about the sample that was being read, so it is never substituted, quarantined or counted.
    """


class NotPreparedError(PlayheadError):
    """An index is missing or older than the recipe."""


class WorldSizeError(PlayheadError):
    """The number of ranks does not fit the lanes."""


class EndOfStreamError(PlayheadError):
    """A step past the end of a finite stream was asked for."""


class StateError(PlayheadError):
    """A saved state is broken, or of another stream."""


class SampleError(PlayheadError):
    """A sample could not be read, mapped or batched; the message names it."""


class WorkerError(PlayheadError):
    """A worker process died; the message names what it was reading."""


@dataclass(frozen=True)
class Failure:
    """One of several failures, and where it happened: a shard, or a source as a whole. `problem` is its message."""

    source: str
    place: str
    problem: str


class PrepareError(PlayheadError):
    """Preparing could not finish; the message lists what failed, the first twenty in full."""

    def __init__(
        self,
        problem: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        fix: str | None = None,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        self.failures = failures
        super().__init__(problem, found=found, expected=expected, fix=fix)

    def message(self) -> str:
        first, *rest = super().message().split("\n")
        shown = [f"{failure.source}: {failure.problem}" for failure in self.failures[:_SHOWN_FAILURES]]
        if len(self.failures) > _SHOWN_FAILURES:
            shown.append(f"and {len(self.failures) - _SHOWN_FAILURES:,} more")
        messages = [f"\n{indent(text, '  ')}" for text in shown]
        return "\n".join([first, *messages, *([""] if messages and rest else []), *rest])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_prepare, (self.problem, self.found, self.expected, self.fix, self.failures)


def _rebuild_prepare(
    problem: str,
    found: str | None,
    expected: str | None,
    fix: str | None,
    failures: tuple[Failure, ...],
) -> PrepareError:
    return PrepareError(problem, found=found, expected=expected, fix=fix, failures=failures)
