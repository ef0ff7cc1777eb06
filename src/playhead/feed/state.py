"""The checkpoint: a few hundred bytes of JSON, byte-equal on every rank."""

from __future__ import annotations

import warnings
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from playhead.deal import worlds_that_fit
from playhead.errors import StateError
from playhead.fingerprint import digest
from playhead.plan.chain import Chain, delivered_under, in_force
from playhead.plan.cursor import Cursor, Place
from playhead.plan.plan import Plan
from playhead.plan.rules import rule_name
from playhead.types import IntArray

VERSION = 2


class PayloadWarning(UserWarning):
    """The plan is the same, but the contents of its samples may differ."""


class Position(Struct, frozen=True):
    """A position of delivery: a cursor, the lanes done of its step, the totals so far, and the current round."""

    cursor: Cursor
    lanes_done: int
    totals: IntArray
    round: int = 0


class Saved(Struct, frozen=True, forbid_unknown_fields=True):
    """A state as stored in JSON.

    `about` describes, for messages, what the plan's fingerprint is made of; `checksum` is a digest of the rest.
    """

    version: int
    plan: str
    payload: str
    about: dict[str, Any]
    step: int
    turn: int
    places: list[tuple[int, int]]
    lanes_done: int
    delivered: int
    round: int
    totals: list[tuple[int, int, int]]
    receipt: str
    checksum: str = ""


def save(position: Position, plan: Plan, payload: str) -> dict[str, Any]:
    """The state of a position. Law: `restore` of it is the position, on any rank and number of workers."""
    cursor = position.cursor
    assert cursor.receipt is not None
    saved = Saved(
        version=VERSION,
        plan=plan.chain[in_force(plan.chain, cursor.places)].fingerprint,
        payload=payload,
        about=_about(plan, cursor.places),
        step=cursor.step,
        turn=cursor.turn,
        places=[(place.window, place.step) for place in cursor.places],
        lanes_done=position.lanes_done,
        delivered=cursor.step,
        round=position.round,
        totals=[(int(a), int(b), int(c)) for a, b, c in position.totals],
        receipt=f"{cursor.receipt:016x}",
    )
    plain: dict[str, Any] = msgspec.to_builtins(replace(saved, checksum=_checksum(saved)), builtin_types=())
    return msgspec.json.decode(msgspec.json.encode(plain))  # type: ignore[no-any-return]


def restore(state: Any, plan: Plan, payload: str) -> Position:
    """The position of a state. A state that does not fit is refused with what differs and what to do."""
    saved = read_state(state)
    cursor = Cursor(saved.step, tuple(Place(*place) for place in saved.places), saved.turn, int(saved.receipt, 16))
    _check_plan(saved, plan, cursor.places)
    if saved.payload != payload:
        warnings.warn(
            "the state was saved with another map, collate or decode setting, or other files that samples depend on: "
            "the same samples follow, but their contents may differ",
            PayloadWarning,
            stacklevel=3,  # the caller of load_state_dict of a loader
        )
    return Position(cursor, saved.lanes_done, np.array(saved.totals, np.int64), saved.round)


def check_takeover(position: Position, lanes: int, world_size: int) -> None:
    """Refuse a number of ranks that cannot deliver the rest of a step begun on another."""
    fitting = worlds_that_fit(lanes, position.lanes_done)
    if world_size not in fitting:
        raise StateError(
            f"the state is in the middle of a step, where {world_size} ranks cannot take over",
            found=f"{position.lanes_done} of {lanes} lanes of step {position.cursor.step:,} are done",
            expected=f"a world size of {', '.join(map(str, fitting))}",
            fix="resume on one of those, or from a state saved at the end of a step",
        )


def read_state(state: Any) -> Saved:
    """Parse a state, whatever its plan; one that is broken, edited or of another version is refused."""
    try:
        saved = msgspec.convert(state, Saved, strict=False)
        checksum = _checksum(saved)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as error:
        version = state.get("version") if isinstance(state, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise _another_version(version) from None
        raise _broken(str(error)) from None
    if saved.version != VERSION:
        raise _another_version(saved.version)
    if saved.checksum != checksum:
        raise StateError(
            "the state was changed after it was saved: its checksum does not match",
            found=f"checksum {saved.checksum or 'missing'}",
            expected=f"checksum {checksum} for its contents",
            fix="use a state as `state_dict()` returned it, unchanged",
        )
    return saved


def _checksum(saved: Saved) -> str:
    return digest(replace(saved, checksum=""))[:16]


def _broken(found: str) -> StateError:
    return StateError(
        "not a complete Playhead state",
        found=found,
        fix="use a complete state as returned by `state_dict()`; a truncated file cannot be used",
    )


def _another_version(version: int) -> StateError:
    return StateError(
        "the state was saved by another version of Playhead",
        found=f"state version {version}",
        expected=f"state version {VERSION}",
        fix="resume with the version that saved it",
    )


def _about(plan: Plan, places: tuple[Place, ...]) -> dict[str, Any]:
    """A summary of the rules in force at these places, used to report what differs."""
    segments = [
        next(segment for segment in reversed(stream.segments) if segment.first_window <= place.window)
        for stream, place in zip(plan.streams, places, strict=True)
    ]
    lanes = [segment.lanes for segment in segments]
    amendments = in_force(plan.chain, places)
    return {
        "seed": plan.streams[0].seed,
        "lanes": lanes[0] if plan.fuse is not None else sum(lanes),
        "window_size": [segment.window_size for segment in segments][:8],
        "batching": _short([[rule_name(segment.rule), segment.rule, segment.balance] for segment in segments]),
        "source names": _short([stream.source_names for stream in plan.streams]),
        "rows and shuffles": _short([[w.num_rows, w.shuffle] for s in plan.streams for w in s.orders]),
        "weights and policy": _short(
            [[p.blend.shares.tolist(), p.stop_draw] for segment in segments for p in segment.pieces]
            + [[stream.epochs for stream in plan.streams]]
        ),
    } | ({"amendments": amendments} if amendments else {})


def _short(value: Any) -> str:
    return digest(value)[:8]


def _check_plan(saved: Saved, plan: Plan, places: tuple[Place, ...]) -> None:
    """Accept a fingerprint of the plan's chain that fits the position of the state; refuse others with what differs.

    Where the first window of an amendment has not begun yet, the fingerprint before it is accepted as well.
    """
    known = [link.fingerprint for link in plan.chain]
    if saved.plan not in known:
        raise _another_stream(saved, plan)
    number, current = known.index(saved.plan), in_force(plan.chain, places)
    if not delivered_under(plan.chain, places, saved.lanes_done) <= number <= current:
        raise _other_amendments(number, current, plan.chain, places)


def plan_differences(saved: Saved, plan: Plan) -> dict[str, tuple[Any, Any]]:
    """What a state and a plan say differently of themselves, saved and now; {} where they differ in lengths alone."""
    fits = len(saved.places) == len(plan.streams)
    places = tuple(Place(*place) for place in saved.places) if fits else plan.start().places
    now = _about(plan, places)
    return {
        key: (saved.about.get(key, "?"), now.get(key, "?"))
        for key in {**now, **saved.about}
        if saved.about.get(key) != now.get(key)
    }


def _another_stream(saved: Saved, plan: Plan) -> StateError:
    changed = plan_differences(saved, plan) or {"lengths of the samples": ("?", "?")}
    return StateError(
        f"the state belongs to another stream: {', '.join(changed)} changed",
        found="saved   " + ", ".join(f"{key} {before}" for key, (before, _) in changed.items()),
        expected="current " + ", ".join(f"{key} {now}" for key, (_, now) in changed.items()),
        fix="resume with the recipe and the prepared data it was saved with, or start a new run without the state",
    )


def _other_amendments(saved: int, current: int, chain: Chain, places: tuple[Place, ...]) -> StateError:
    number = min(saved + 1, max(saved, current))
    begins = f"window {', '.join(map(str, chain[number].first_windows))}"
    return StateError(
        f"the state was saved with {_amendments(saved)}, where the recipe has {_amendments(current)} in force",
        found=f"saved   fingerprint {chain[saved].fingerprint} at window {', '.join(str(p.window) for p in places)}",
        expected=f"current fingerprint {chain[current].fingerprint}; amendment {number} begins at {begins}",
        fix=f"resume from a state saved before {begins}, or let amendment {number} begin later"
        if saved < current
        else f"let amendment {number} begin where it did when the state was saved",
    )


def _amendments(number: int) -> str:
    return f"{number or 'no'} amendment{'' if number == 1 else 's'}"
