"""A micro-batch whose contents differ, made once more by both runs: where it differs, and whether it ever repeats."""

from __future__ import annotations

from dataclasses import replace

from playhead.errors import PlayheadError
from playhead.verify.payload import Part, first_difference, read_parts
from playhead.verify.runs import Run, Runs
from playhead.verify.verdict import Difference, Verdict


def explained(verdict: Verdict, runs: Runs) -> Verdict:
    """The verdict with field and element of a difference in contents, and with the tag of an unseeded map if it is one.

    The expected run is made twice: where it differs from itself, neither resuming nor workers are to blame.
    """
    difference = verdict.difference
    if difference is None or difference.field is None:
        return verdict
    expected, delivered = (runs.done.get(name) for name in difference.runs)  # there is no one run that crashed
    if expected is None:
        return verdict
    at = (difference.step, difference.lane)
    first = _made(runs, expected, at, f"{expected.name}-{at[0]}-{at[1]}-once")
    second = _made(runs, expected, at, f"{expected.name}-{at[0]}-{at[1]}-twice")
    other = None if delivered is None else _made(runs, delivered, at, f"{delivered.name}-{at[0]}-{at[1]}")
    if first is None or second is None or (other is None and delivered is not None):
        return replace(verdict, difference=replace(difference, note="it could not be made once more"))
    if first_difference(first, second) is not None:
        note = "made twice by the same run, it differs from itself"
        return replace(verdict, tag="unseeded map", difference=with_element(difference, first, second, note))
    if other is None:
        return verdict
    if first_difference(first, other) is None:
        note = "made once more by both runs it was equal: what differs changes from run to run"
        return replace(verdict, difference=replace(difference, note=note))
    return replace(verdict, difference=with_element(difference, first, other, None))


def _made(runs: Runs, run: Run, at: tuple[int, int], name: str) -> list[Part] | None:
    folder = runs.settings.records / "captured" / name / name / f"rank-{at[1] % run.world_size}-captured"
    if not folder.exists():
        try:
            folder = runs.make_again(run, *at, name)
        except PlayheadError:
            return None
    return read_parts(folder)


def with_element(difference: Difference, left: list[Part], right: list[Part], note: str | None) -> Difference:
    """The difference, with the first element that differs between two payloads."""
    found = first_difference(left, right)
    assert found is not None
    return replace(
        difference,
        field=found.path,
        element=found.element or None,
        expected_value=found.expected,
        delivered_value=found.delivered,
        note=note,
    )
