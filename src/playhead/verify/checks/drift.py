"""A saved state against the recipe as it is now."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

from playhead.errors import PlayheadError, StateError
from playhead.feed.produce import Blueprint
from playhead.feed.state import PayloadWarning, Position, Saved, check_takeover, plan_differences, read_state, restore
from playhead.plan.plan import Plan
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check

_WORDS = {
    "seed": "the seed: every order is another",
    "lanes": "the lanes: a step has another number of micro-batches",
    "window_size": "the window size, which follows from the batching, the lanes and the lengths unless it is given",
    "batching": "the batching: its type, size, budget, edges, limits or `balance`",
    "source names": "the sources: one was added, removed or renamed",
    "rows and shuffles": "the number of selected rows of a source (its files, or its rules), or its shuffle",
    "weights and policy": "the shares of the sources, `exhaustion` or `epochs`",
    "lengths": "the lengths of the samples alone: the data was written or measured again",
}
_PLACES = ("seed", "lanes", "batching", "window_size")


def _state(context: Context) -> Any:
    path = context.options.state
    assert path is not None
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(
            f"{path}: cannot be read as a state",
            found=str(error),
            expected="a state in JSON, as `playhead run --state` or `state_dict()` gave it",
        ) from error


@check("PH070", "error", "the state cannot be read", "recipe", "state")
def unreadable_state(context: Context) -> Iterator[Problem]:
    try:
        read_state(_state(context))
    except PlayheadError as error:
        yield problem_of(error, "")


@check("PH071", "error", "the state is of another stream: what changed since, in words", "recipe", "plan", "state")
def drifted_plan(context: Context) -> Iterator[Problem]:
    plan, saved = _plan(context), _readable(context)
    if saved is None or isinstance(found := _position(context), Position):
        return
    if saved.plan in [
        link.fingerprint for link in plan.chain
    ]:  # it is amendments that differ, and the error says which
        yield problem_of(found, "")
        return
    changed = plan_differences(saved, plan)
    if len(changed) > 1:
        changed.pop("window_size", None)  # it follows from the others
    words = [_in_words(name, *both) for name, both in changed.items()] or [_WORDS["lengths"]]
    yield Problem(
        next((name for name in _PLACES if name in changed), "sources"),
        "the state is of another stream than the recipe",
        found=f"saved at step {saved.step:,}; since then changed: {'; '.join(words)}",
        expected="the recipe and the data that the state was saved with",
        fix="undo the change to resume, or start a new run without the state",
    )


def _in_words(name: str, before: Any, now: Any) -> str:
    """What changed; numbers are given, digests are not."""
    numbers = all(isinstance(value, int | list) for value in (before, now))
    return _WORDS.get(name, name) + (f" (was {before}, is {now})" if numbers else "")


def _plan(context: Context) -> Plan:
    assert isinstance(context.plan, Plan)
    return context.plan


def _readable(context: Context) -> Saved | None:
    """The state, where it can be read: another check says if it cannot."""
    try:
        return read_state(_state(context))
    except PlayheadError:
        return None


def _position(context: Context) -> Position | PlayheadError:
    """Where the state stands in the plan, or why it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PayloadWarning)
            return restore(_state(context), _plan(context), "")
    except PlayheadError as error:
        return error


@check("PH072", "warning", "maps, decoding or collation changed since the state was saved", "recipe", "plan", "state")
def drifted_payload(context: Context) -> Iterator[Problem]:
    saved = _readable(context)
    if saved is not None and saved.payload != Blueprint(context.recipe).fingerprint():
        yield Problem(
            "",
            "a map, collate, decode or padding setting changed since the state was saved",
            found=f"saved at step {saved.step:,} with other settings, or other decoders",
            expected="the same: the same samples follow, but what is made of them may differ",
            fix="undo the change, or accept this with --ignore",
        )


@check("PH073", "error", "a planned number of ranks cannot go on from the state", "recipe", "plan", "worlds", "state")
def no_takeover(context: Context) -> Iterator[Problem]:
    position, lanes = _position(context), _plan(context).lanes
    if not isinstance(position, Position):
        return
    for world in context.options.worlds:
        if lanes % world:
            continue  # another check says so
        try:
            check_takeover(position, lanes, world)
        except PlayheadError as error:
            yield problem_of(error, "lanes")
