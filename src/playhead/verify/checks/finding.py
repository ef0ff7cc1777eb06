"""What a check finds: a problem, and the same with its code and line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from playhead.errors import PlayheadError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Problem:
    """What is wrong at a place of the recipe ("" is the recipe as a whole). Without a severity it has the check's."""

    place: str
    problem: str
    found: str | None = None
    expected: str | None = None
    fix: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True)
class Finding:
    """A problem with the code of the check that found it, its severity, and its line in the recipe's file."""

    code: str
    severity: Severity
    place: str
    line: int | None
    problem: str
    found: str | None
    expected: str | None
    fix: str | None


def problem_of(error: PlayheadError, place: str, severity: Severity | None = None) -> Problem:
    """An error as a problem: its place is shown beside it, and left out of the text."""
    text = error.problem.removeprefix(place).lstrip(": ") if place else error.problem
    return Problem(place, text, error.found, error.expected, error.fix, severity)
