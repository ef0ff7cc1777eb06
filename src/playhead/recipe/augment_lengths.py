"""How augmentations change the length of audio, in whole milliseconds, for the plan.

The plan is made before anything is drawn, so it uses the longest possible length; a shorter sample is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from playhead.recipe.augments import Augment, Crop, Pad, Speed
from playhead.recipe.units import milliseconds as in_milliseconds

_LARGEST_DENOMINATOR = 1_000_000  # so that a length of 32 bits times it fits 64

Lengths = TypeVar("Lengths", int, np.ndarray[Any, np.dtype[np.integer[Any]]])


def ratio(factor: float) -> Fraction:
    """A factor of speed as a fraction of whole numbers: 0.9 is 9/10, whatever its binary fraction."""
    return Fraction(str(factor)).limit_denominator(_LARGEST_DENOMINATOR)


def changed_milliseconds(lengths: Lengths, augments: Sequence[Augment]) -> Lengths:
    """The lengths to plan for audio that is augmented: one in milliseconds, or an array (the result is of int64).

    Law: audio of a length, augmented with any draws, is never longer than this. It may be shorter.
    """
    found: Any = lengths.astype(np.int64) if isinstance(lengths, np.ndarray) else lengths
    highest, lowest = (np.maximum, np.minimum) if isinstance(lengths, np.ndarray) else (max, min)
    for augment in augments:
        if augment.probability == 0:
            continue
        if isinstance(augment, Speed):
            slowest = min(map(ratio, augment.factors))
            slowed = -(-found * slowest.denominator // slowest.numerator)
            found = slowed if augment.probability == 1 else highest(found, slowed)
        elif isinstance(augment, Crop) and augment.probability == 1:
            found = lowest(found, in_milliseconds(augment.seconds))
        elif isinstance(augment, Pad):
            found = highest(found, in_milliseconds(augment.seconds))
    done: Lengths = found
    return done


def changes_length(augment: Augment) -> bool:
    """Whether audio may be longer or shorter after it."""
    return isinstance(augment, Speed | Crop | Pad) and augment.probability > 0


def may_be_shorter(augments: Sequence[Augment]) -> bool:
    """Whether audio may be shorter than `changed_milliseconds`, by more than rounding."""
    return any(_varies(augment) for augment in augments)


def _varies(augment: Augment) -> bool:
    if not changes_length(augment):
        return False
    if isinstance(augment, Speed):
        factors = {ratio(factor) for factor in augment.factors}
        return len(factors | ({Fraction(1)} if augment.probability < 1 else set())) > 1
    return augment.probability < 1
