"""Functions that the recipe names: found, sent to workers, imported by them, and the same every time."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from playhead.errors import PlayheadError
from playhead.read.mapping import takes_generator
from playhead.recipe.check_delivery import COLLATES
from playhead.recipe.imports import resolve_function
from playhead.recipe.tree import leaves, map_of
from playhead.recipe.values import Recipe
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check

_PATIENCE_SECONDS = 60.0


def _named(recipe: Recipe) -> dict[str, str]:
    """The functions that a recipe names, each with the first place that does."""
    found: dict[str, str] = {}
    for leaf in leaves(recipe):
        given = None if leaf.is_noise else map_of(recipe, leaf)
        if given is not None:
            found.setdefault(*given)
        for field, length in (("length", leaf.source.length), ("output_length", leaf.source.output_length)):
            for term in () if length is None else length.terms:
                if term.function is not None:
                    found.setdefault(term.function, f"{leaf.path}.{field}.function")
    if recipe.collate not in COLLATES:
        found.setdefault(recipe.collate, "collate")
    return found


def _resolved(recipe: Recipe) -> Iterator[tuple[str, str, Callable[..., Any] | PlayheadError]]:
    for name, place in _named(recipe).items():
        try:
            yield name, place, resolve_function(name, place)
        except PlayheadError as error:
            yield name, place, error


@check("PH050", "error", "a function that the recipe names cannot be found or imported", "recipe")
def missing_functions(context: Context) -> Iterator[Problem]:
    for _, place, function in _resolved(context.recipe):
        if isinstance(function, PlayheadError):
            yield problem_of(function, place)
            continue
        try:
            if place.endswith("map"):
                takes_generator(function)
        except PlayheadError as error:
            yield problem_of(error, place)


@check("PH051", "warning", "a function cannot be pickled: a lambda, or one made inside another", "recipe")
def unpicklable_functions(context: Context) -> Iterator[Problem]:
    for name, place, function in _resolved(context.recipe):
        if isinstance(function, PlayheadError):
            continue
        try:
            pickle.dumps(function)
        except Exception as error:  # noqa: BLE001 - pickling runs code of the user's classes
            yield Problem(
                place,
                f"{name} cannot be pickled: workers find it by its name here, and not where it is given to a loader",
                found=f"{type(error).__name__}: {error}",
                expected="a function defined with `def` at the top level of a module",
                fix="define it so; then its name is also in tracebacks",
            )


@check("PH052", "error", "a map gives another sample when it is run on a row again", "recipe", "tables")
def unseeded_maps(context: Context) -> Iterator[Problem]:
    reported: set[str] = set()
    for source in context.prepared:
        named = map_of(context.recipe, source.leaf)
        facts = context.rows[source.leaf.path]
        unlike = [row for row in facts if row.differs is not None]
        drawn_from = ", ".join(dict.fromkeys(name for row in facts for name in row.drawn_from))
        if named is None or named[0] in reported or not (unlike or drawn_from):
            continue
        reported.add(named[0])
        if unlike:
            problem = f"the map {named[0]} gives another sample when it is run on a row again"
            found = f'row {unlike[0].row:,} of "{source.name}": {unlike[0].differs}'
            found += f"; it draws from {drawn_from}" if drawn_from else ""
        else:
            problem = f"the map {named[0]} draws from a global random generator"
            found = f"{drawn_from}, whose numbers depend on what its process did before"
        yield Problem(
            named[1],
            problem,
            found,
            "a sample that depends on its row and epoch alone: else it differs after a resume, or on other workers",
            "take a second argument, the sample's own numpy generator, and draw from that; use no clock or counter",
        )


@check("PH053", "error", "a spawned worker cannot import the module of a function", "recipe")
def unimportable_modules(context: Context) -> Iterator[Problem]:
    here = [(name, place) for name, place, function in _resolved(context.recipe) if callable(function)]
    if not here:
        return
    for (name, place), problem in zip(here, _imported_by_worker([name for name, _ in here]), strict=True):
        if problem is not None:
            yield Problem(
                place,
                f"a worker process cannot import {name}, which this one can",
                found=problem,
                expected="a module that any process can import, without effects",
                fix='move what a worker cannot do under a function, or under `if __name__ == "__main__":`',
            )


def _imported_by_worker(names: Sequence[str]) -> list[str | None]:
    """For each function, what goes wrong when a spawned process looks for it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_import_all, args=(names, theirs), name="playhead-check", daemon=True)
    process.start()
    theirs.close()
    found: list[str | None] = []
    try:
        while len(found) < len(names) and ours.poll(_PATIENCE_SECONDS):
            found.append(ours.recv())
        ended = "it did not finish" if process.is_alive() else "the process ended"
    except EOFError:
        ended = "the process ended"
    process.terminate()
    process.join()
    return [*found, *[f"{ended} while importing it"] * (len(names) - len(found))]


def _import_all(names: Sequence[str], results: Connection) -> None:
    for name in names:
        try:
            resolve_function(name)
        except Exception as error:  # noqa: BLE001 - a module may raise anything when it is imported
            results.send(str(getattr(error, "found", None) or error))
        else:
            results.send(None)
