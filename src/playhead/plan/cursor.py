"""Where the stream stands. All the state there is."""

from __future__ import annotations

from msgspec import Struct


class Place(Struct, frozen=True):
    """A position in a sub-stream: a window, and a step in it."""

    window: int = 0
    step: int = 0


class Cursor(Struct, frozen=True):
    """The next step's number, where each sub-stream stands, and the receipt of all steps before.

    `turn` counts the turns dealt to sub-streams that are fused by weight; `receipt` is None for a cursor that was
    computed without the steps before it.
    """

    step: int
    places: tuple[Place, ...]
    turn: int
    receipt: int | None

    def to_record(self) -> list[int]:
        """The cursor as plain numbers, its step first."""
        assert self.receipt is not None, "a cursor that skipped steps has no receipt to record"
        return [self.step, self.receipt, self.turn, *(n for place in self.places for n in (place.window, place.step))]

    @staticmethod
    def from_record(record: list[int]) -> Cursor:
        step, receipt, turn, *rest = record
        places = tuple(Place(window, inside) for window, inside in zip(rest[::2], rest[1::2], strict=True))
        return Cursor(step, places, turn, receipt)
