"""Lanes against the numbers of ranks that are planned."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from playhead.deal import worlds_that_fit
from playhead.recipe.check_sizes import MOST_LANES
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem
from playhead.verify.checks.registry import check
from playhead.verify.checks.wording import listed


@check("PH030", "error", "a planned number of ranks does not divide the lanes", "recipe", "worlds")
def uneven_worlds(context: Context) -> Iterator[Problem]:
    recipe, worlds = context.recipe, context.options.worlds
    places = [("lanes", recipe.lanes or 1)]
    places += [(f"evaluation.{name}.lanes", chosen.lanes) for name, chosen in recipe.evaluation.items() if chosen.lanes]
    for place, lanes in places:
        uneven = [world for world in worlds if lanes % world]
        if uneven:
            yield Problem(
                place,
                f"{', '.join(map(str, uneven))} ranks cannot share {lanes} lanes evenly",
                found=f"--world {','.join(map(str, worlds))}, and {lanes} lanes"
                + ("" if place != "lanes" or recipe.lanes else ", for none are given"),
                expected=f"numbers of ranks that divide the lanes: {listed(worlds_that_fit(lanes), 16)}",
                fix=_better_lanes(place, lanes, worlds),
            )


def _better_lanes(place: str, lanes: int, worlds: tuple[int, ...]) -> str:
    """The multiple of every number of ranks that is nearest to the lanes now, and what it changes."""
    least = lcm(*worlds)
    if least > MOST_LANES:
        return f"plan numbers of ranks with a smaller common multiple than {least:,}, such as powers of two"
    better = max(1, round(lanes / least)) * least
    if place != "lanes":
        return f"write `{place}: {better}`"
    return f"write `lanes: {better}` before the first run: a step then has {better} micro-batches in place of {lanes}"


@check("PH031", "note", "`lanes` is not set: only one rank can run the recipe", "recipe")
def no_lanes(context: Context) -> Iterator[Problem]:
    if context.recipe.lanes is None and all(world == 1 for world in context.options.worlds):
        yield Problem(
            "lanes",
            "`lanes` is not set: only one rank can run the recipe",
            found="one micro-batch to a step",
            expected="the micro-batches of an optimizer step, on all ranks together",
            fix="add a line such as `lanes: 8`, a multiple of every number of ranks that you may have",
        )
