"""The recipe as written: whether it can be used, and its seed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from playhead.errors import PlayheadError
from playhead.recipe.values import Recipe
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check

_PLACE = re.compile(r"[A-Za-z_][\w.]*(?:\[\d+\][\w.]*)*")


@check(
    "PH001", "error", "the recipe cannot be used: a wrong key, type, name or number (a seed that is no integer, too)"
)
def unusable_recipe(context: Context) -> Iterator[Problem]:
    if isinstance(context.loaded, PlayheadError):
        yield problem_of(context.loaded, _place_in(context.loaded.problem, context.values))


def _place_in(problem: str, values: Mapping[str, Any]) -> str:
    """The place that the message of an error begins with; "" where it begins with something else."""
    found = _PLACE.match(problem)
    root = found[0].partition(".")[0].partition("[")[0] if found else ""
    return found[0] if found and root in (*Recipe.__struct_fields__, *values) else ""


@check("PH002", "warning", "the seed is not set", "recipe")
def seed_not_set(context: Context) -> Iterator[Problem]:
    if "seed" not in context.values:
        yield Problem(
            "seed",
            "the seed is not set",
            found="no `seed`: it is 0",
            expected="a seed in the recipe, for it decides every order",
            fix="add a line such as `seed: 1`",
        )


@check("PH003", "warning", "the seed comes from the environment: a resumed job may have another", "recipe")
def seed_from_environment(context: Context) -> Iterator[Problem]:
    seed = context.values.get("seed")
    if isinstance(seed, str) and "${" in seed.replace("$${", ""):
        yield Problem(
            "seed",
            "the seed is read from the environment",
            found=f"{seed}, which is {context.recipe.seed} now",
            expected="the same seed whenever the job is started: a state of another seed is refused",
            fix=f"write the number itself: `seed: {context.recipe.seed}`",
        )


@check("PH004", "error", "the plan cannot be made of the prepared sources", "recipe", "tables")
def unplannable(context: Context) -> Iterator[Problem]:
    too_long = [str(error) for error in context.overlong.values()]  # a check of its own says so
    for plan in (context.plan, *context.evaluation_plans.values()):
        if isinstance(plan, PlayheadError) and str(plan) not in too_long:
            yield problem_of(plan, _place_in(plan.problem, context.values))
