"""The first micro-batches of every sub-stream, made as a worker would."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np

from playhead.deal import Identity
from playhead.errors import PlayheadError
from playhead.feed.produce import Blueprint, Produced
from playhead.feed.state import Position
from playhead.feed.tasks import TaskMaker, Work
from playhead.feed.totals import nothing_yet
from playhead.plan.plan import Plan
from playhead.recipe.check_delivery import COLLATES
from playhead.resolve.resolve import leaves_by_stream
from playhead.store.copies import NoCopyError
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check
from playhead.verify.payload import difference_in_words

_MICRO_BATCHES = 4
_MOST_SAMPLES = 64
_ROWS_CHARACTERS = 200
_MOST_TASKS = 4096  # looked through for those of each sub-stream: a rare one may come late


@check("PH026", "error", "the samples of a micro-batch cannot be put into a batch", "recipe", "tables")
def unmade_batches(context: Context) -> Iterator[Problem]:
    if any(row.problem for rows in context.rows.values() for row in rows):
        return  # another check has said so
    for split, plan in ((None, context.plan), *context.evaluation_plans.items()):
        if isinstance(plan, Plan):
            yield from _unmade(context, split, plan)


def _unmade(context: Context, split: str | None, plan: Plan) -> Iterator[Problem]:
    place = "collate" if "collate" in context.values else ""
    try:
        producer = Blueprint(context.recipe, split).build()
    except PlayheadError as error:
        if error.problem.split(":")[0] not in _function_places(context):  # else another check has said so
            yield problem_of(error, place)
        return
    for work in _first_works(context, split, plan):
        try:
            made = producer(work)
            problem = None if context.recipe.collate in COLLATES else _unlike(context, made, producer(work))
        except NoCopyError:  # of other steps than those that were fetched
            continue
        except PlayheadError as error:
            problem = _uncollated(error, place)
        if problem is not None:  # one is enough
            yield problem
            return


def _uncollated(error: PlayheadError, place: str) -> Problem:
    """The error, with the rows of the micro-batch after the problem: they may be many."""
    batch, _, what = error.problem.partition("): ")
    if not what:
        return problem_of(error, place)
    rows = textwrap.shorten(batch.partition("(")[2], _ROWS_CHARACTERS, placeholder=" ...")
    found = "; ".join(filter(None, (error.found, rows)))
    return Problem(place, f"samples cannot be put into a batch: {what}", found, error.expected, error.fix)


def _function_places(context: Context) -> set[str]:
    return {"map", "collate", *(f"{source.leaf.path}.map" for source in context.sources)}


def _unlike(context: Context, first: Produced, second: Produced) -> Problem | None:
    """What is wrong with a collate function that gave these two for the same samples."""
    maps_differ = any(row.differs for rows in context.rows.values() for row in rows)
    found = None if maps_differ else difference_in_words(first.payload, second.payload)
    if found is None:
        return None
    return Problem(
        "collate",
        "the collate function gives another batch when it is run on the same samples again",
        found=found,
        expected="a batch that depends on its samples alone",
        fix="draw no random numbers in it; a map is given a generator of its own for each sample",
    )


def _first_works(context: Context, split: str | None, plan: Plan) -> Iterator[Work]:
    """The first micro-batches of each sub-stream, cut to a number of samples that takes no time."""
    units = tuple(leaves[0].unit for leaves in leaves_by_stream(context.recipe, split))
    maker = TaskMaker(plan, context.recipe, units, Identity(0, 1, "given"), None)
    wanted = dict.fromkeys(range(len(plan.streams)), _MICRO_BATCHES)
    for task in islice(maker.tasks(Position(plan.start(), 0, nothing_yet(plan)), 0), _MOST_TASKS):
        request = task.work.request
        if wanted[request.stream]:
            wanted[request.stream] -= 1
            picks = request.picks.take(np.arange(min(_MOST_SAMPLES, len(request.picks))))
            lengths = None if request.lengths is None else request.lengths[:_MOST_SAMPLES]
            first = msgspec.structs.replace(request, picks=picks, lengths=lengths)
            yield msgspec.structs.replace(task.work, request=first)
        if not any(wanted.values()):
            return
