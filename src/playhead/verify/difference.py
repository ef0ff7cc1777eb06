"""The first difference between what was expected and what was delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from playhead.verify.record import BatchLine
from playhead.verify.verdict import SEEDING, STATE, Difference

Kind = Literal["ahead", "behind", "samples", "ids", "payload", "short", "long"]
NOTHING = "nothing"


class Placed(NamedTuple):
    """A micro-batch, and the rank it was delivered on."""

    rank: int
    batch: BatchLine


@dataclass(frozen=True)
class Mismatch:
    """A difference, what it is of, and by how many micro-batches one side is ahead where it is."""

    kind: Kind
    difference: Difference
    distance: int = 0


def compare(
    expected: Sequence[Placed], delivered: Sequence[Placed], runs: tuple[str, str], before: Sequence[Placed] = ()
) -> Mismatch | None:
    """The first place where two sequences of micro-batches differ; None where they are equal to the last bit.

    `before` are those that came before the expected ones, and should not come again.
    """
    for number, (want, found) in enumerate(zip(expected, delivered, strict=False)):
        if _same_samples(want.batch, found.batch):
            if (kind := _contents_differ(want.batch, found.batch)) is not None:
                return Mismatch(kind, _of_contents(want, found, runs))
            continue
        distance = _distance([*before, *expected], len(before) + number, found)
        kind = "samples" if distance == 0 else "ahead" if distance > 0 else "behind"
        return Mismatch(kind, _of_samples(want, found, runs), abs(distance))
    if len(delivered) < len(expected):
        want = expected[len(delivered)]
        difference = Difference(want.batch.step, want.batch.lane, want.rank, _first(want.batch), NOTHING, runs)
        return Mismatch("short", difference, len(expected) - len(delivered))
    if len(delivered) > len(expected):
        found = delivered[len(expected)]
        difference = Difference(found.batch.step, found.batch.lane, found.rank, NOTHING, _first(found.batch), runs)
        return Mismatch("long", difference, len(delivered) - len(expected))
    return None


def placed_on(rank: int, batches: Iterable[BatchLine]) -> list[Placed]:
    return [Placed(rank, batch) for batch in batches]


def smallest(mismatches: Iterable[Mismatch | None]) -> Mismatch | None:
    """The first of several in the order of steps and lanes."""
    found = [mismatch for mismatch in mismatches if mismatch is not None]
    return min(found, key=lambda mismatch: (mismatch.difference.step, mismatch.difference.lane), default=None)


def with_causes(found: Mismatch) -> Difference:
    """The difference with the usual causes of its kind."""
    return replace(found.difference, causes=SEEDING if found.kind in ("payload", "ids") else STATE)


def in_words(found: Mismatch) -> str:
    distance = f"{found.distance:,} micro-batch{'' if found.distance == 1 else 'es'}"
    words: dict[Kind, str] = {
        "ahead": f"it goes on {distance} too far",
        "behind": f"it goes on {distance} too early",
        "samples": "other samples come",
        "ids": "the same samples come with other ids",
        "payload": "the same samples come with other contents",
        "short": f"it ends {distance} too early",
        "long": f"it ends {distance} too late",
    }
    return words[found.kind]


def by_place(batches: Sequence[Placed]) -> list[Placed]:
    """The micro-batches of all ranks as one would be delivered them."""
    return sorted(batches, key=lambda placed: (placed.batch.step, placed.batch.lane))


def _same_samples(want: BatchLine, found: BatchLine) -> bool:
    place = (want.step, want.lane, want.idle) == (found.step, found.lane, found.idle)
    return place and (want.sources, want.epochs, want.rows) == (found.sources, found.epochs, found.rows)


def _contents_differ(want: BatchLine, found: BatchLine) -> Kind | None:
    if want.ids != found.ids:
        return "ids"
    return "payload" if want.payload != found.payload else None


def _distance(expected: Sequence[Placed], number: int, found: Placed) -> int:
    """How many micro-batches the delivered one is ahead of where it should be; 0 where it is in no place at all."""
    for other, want in enumerate(expected):
        if _same_samples(want.batch, found.batch):
            return other - number
    return 0


def _of_samples(want: Placed, found: Placed, runs: tuple[str, str]) -> Difference:
    picks, others = want.batch.picks, found.batch.picks
    slot = next(
        (i for i, (a, b) in enumerate(zip(picks, others, strict=False)) if a != b), min(len(picks), len(others))
    )
    note = None
    if (found.batch.step, found.batch.lane) != (want.batch.step, want.batch.lane):
        note = f"delivered as step {found.batch.step:,}, lane {found.batch.lane}"
        slot = 0
    elif len(picks) != len(others):
        note = f"{len(picks)} samples expected in the micro-batch, {len(others)} delivered"
    texts = [batch.sample(slot) if slot < len(batch.rows) else NOTHING for batch in (want.batch, found.batch)]
    return Difference(want.batch.step, want.batch.lane, found.rank, texts[0], texts[1], runs, note=note)


def _of_contents(want: Placed, found: Placed, runs: tuple[str, str]) -> Difference:
    """Of micro-batches with the same samples and other contents: the first sample whose id, or the field, differs."""
    slot, field = 0, None
    if want.batch.ids is not None and found.batch.ids is not None and want.batch.ids != found.batch.ids:
        slot = next(i for i, (a, b) in enumerate(zip(want.batch.ids, found.batch.ids, strict=False)) if a != b)
    ours, theirs = want.batch.payload or {}, found.batch.payload or {}
    field = next((name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)), None)
    texts = want.batch.sample(slot), found.batch.sample(slot)
    return Difference(want.batch.step, want.batch.lane, found.rank, *texts, runs, field=field)


def _first(batch: BatchLine) -> str:
    return batch.sample(0) if batch.rows else NOTHING
