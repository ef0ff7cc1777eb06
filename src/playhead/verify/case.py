"""Everything that questions are asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from playhead.errors import PlayheadError
from playhead.index.table import Table
from playhead.plan.plan import Plan
from playhead.read import Incident
from playhead.recipe.values import Recipe
from playhead.verify.enumeration import EnumeratedSource
from playhead.verify.runs import Runs
from playhead.verify.settings import PassPart, VerifySettings
from playhead.verify.verdict import Share, Verdict


@dataclass(frozen=True)
class Case:
    """A recipe, its plan and that of one pass of it, the runs that were made, and the rows that its files hold.

    `replaced` are the bad samples that others stood in for, `shares` the proportions of the sources.
    """

    settings: VerifySettings
    recipe: Recipe
    tables: Mapping[str, Table]
    plan: Plan
    pass_plan: Plan
    part: PassPart
    steps: int
    runs: Runs
    rows: Mapping[str, EnumeratedSource] = field(default_factory=dict)
    replaced: tuple[Incident, ...] = ()
    shares: tuple[Share, ...] = ()

    @property
    def lanes(self) -> int:
        return self.plan.lanes


def failed_run(question: str, error: PlayheadError) -> Verdict:
    """The verdict on a question whose run ended with an error."""
    return Verdict(question, "failed", (error.message(),), "failed run")
