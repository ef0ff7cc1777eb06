"""A check: a code, and a function that looks for one kind of problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, Severity

Need = Literal["recipe", "tables", "plan", "steps", "worlds", "state"]
# In the order in which they are asked for, each with why it may be missing.
NEEDS: dict[Need, str] = {
    "recipe": "the recipe cannot be used",
    "steps": "needs --steps",
    "worlds": "needs --world",
    "state": "needs --state",
    "tables": "no source is prepared",
    "plan": "no plan: a source is not prepared, or refused",
}
_CODE = re.compile(r"PH\d{3}")


@dataclass(frozen=True)
class Check:
    """`title` says what it finds, `severity` how bad that is unless the problem says so, `needs` what it works on."""

    code: str
    severity: Severity
    title: str
    needs: tuple[Need, ...]
    look: Callable[[Context], Iterable[Problem]]


def check(
    code: str, severity: Severity, title: str, *needs: Need
) -> Callable[[Callable[..., Iterable[Problem]]], Check]:
    """Make a function a check. All but those without needs work on a recipe that can be used."""
    assert _CODE.fullmatch(code)

    def made(look: Callable[[Context], Iterable[Problem]]) -> Check:
        return Check(code, severity, title, needs, look)

    return made
