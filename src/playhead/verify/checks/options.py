"""What is planned with a recipe, to check it against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from playhead.verify.checks.machine_limits import MachineLimits


@dataclass(frozen=True)
class Ignored:
    """Findings to accept: those of a code, at one place of the recipe if one is given."""

    code: str
    place: str | None = None

    def covers(self, code: str, place: str) -> bool:
        return self.code == code and self.place in (None, place)


@dataclass(frozen=True)
class CheckOptions:
    """`worlds` are the numbers of ranks and `steps` the steps of the planned run; `state` is one to go on from.

    With `only`, no other checks are made than these. At most `rows` rows of each source are read. `limits` are those of
    this machine, unless others are given.
    """

    worlds: tuple[int, ...] = ()
    steps: int | None = None
    state: Path | None = None
    ignored: tuple[Ignored, ...] = ()
    only: tuple[str, ...] | None = None
    rows: int = 8
    limits: MachineLimits | None = None
