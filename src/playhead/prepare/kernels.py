"""The kernels that a loader needs, compiled ahead, so that the ranks of a large job need not do it."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from playhead.errors import PlayheadError
from playhead.feed.totals import running_totals
from playhead.read.substitutes import candidates
from playhead.recipe.values import Recipe
from playhead.resolve.open import map_tables, plan_tables
from playhead.store import Files


def compile_kernels(recipe: Recipe, files: Files) -> None:
    """Plan the first step of every stream of a prepared recipe as a loader would, to compile its kernels.

    They are cached on disk (see `kernel` in types.py). Errors of the plan are reported when it is opened.
    """
    for split in (None, *recipe.evaluation):
        with suppress(PlayheadError):
            _plan_first_step(recipe, split, files)
    candidates(0, 0, 0, 1)


def _plan_first_step(recipe: Recipe, split: str | None, files: Files) -> None:
    tables = map_tables(recipe, split, files)
    plan = plan_tables(recipe, tables, split)
    next(iter(plan.steps()), None)
    for number in range(len(plan.streams)):
        running_totals(plan, number, plan.window(number, 0))
    for table in tables.values():
        table.raw_rows(np.zeros(1, dtype=np.int64))
