"""The fingerprints of a plan: one of the recipe as the run began, and one more from each amendment on."""

from __future__ import annotations

from msgspec import Struct

from playhead.plan.cursor import Place


class Link(Struct, frozen=True):
    """A fingerprint, and the window of each sub-stream from which on it is in force."""

    fingerprint: str
    first_windows: tuple[int, ...]


Chain = tuple[Link, ...]


def in_force(chain: Chain, places: tuple[Place, ...]) -> int:
    """The number of the link that decides the step at these places: the last that any sub-stream has come to."""
    return max(i for i, link in enumerate(chain) if i == 0 or _reached(link, places, 0))


def delivered_under(chain: Chain, places: tuple[Place, ...], lanes_done: int) -> int:
    """The number of the last link that decided anything before these places, with `lanes_done` of the step done.

    It is not the one in force where the first window of an amendment is still to begin.
    """
    return max(i for i, link in enumerate(chain) if i == 0 or _reached(link, places, 0 if lanes_done else 1))


def _reached(link: Link, places: tuple[Place, ...], num_steps: int) -> bool:
    """Whether any sub-stream stands `num_steps` or more inside the windows of a link."""
    firsts = zip(places, link.first_windows, strict=True)
    return any((place.window, place.step) >= (first, num_steps) for place, first in firsts)
