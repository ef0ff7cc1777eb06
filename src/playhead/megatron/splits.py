"""Train, valid and test as parts of one dataset: the split string, as fractions and as ranges of sequences."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np

from playhead.errors import RecipeError

SPLITS = ("train", "valid", "test")
SplitBounds = tuple[float, float]
SplitMatrix = tuple[SplitBounds | None, ...]

_NUMBER = re.compile(r"[.0-9]+")


def normalise(weights: list[float]) -> list[float]:
    """Weights normalized to a sum of one. With numpy, because its sum differs in the last digits."""
    found = np.array(weights, np.float64)
    shares: list[float] = (found / np.sum(found)).tolist()
    return shares


def split_matrix(split: str) -> SplitMatrix:
    """The fractions at which each split begins and ends; None for one without a share.

    The first begins with the integer 0, not 0.0, as in the description in the cache.
    """
    shares = _shares(split)
    ends: list[float] = [0]
    for share in shares:
        ends.append(ends[-1] + share)
    return tuple(None if end <= begin else (begin, end) for begin, end in pairwise(ends))


def _shares(split: str) -> list[float]:
    expected = 'up to three numbers for train, valid and test, such as "969, 30, 1"'
    try:
        numbers = [float(number) for number in _NUMBER.findall(split)]
    except ValueError as error:
        raise RecipeError(f'--split "{split}": is not a list of numbers', expected=expected) from error
    if not 1 <= len(numbers) <= len(SPLITS) or not 0 < sum(numbers) < math.inf:
        raise RecipeError(f'--split "{split}": is not a valid split', expected=expected)
    return normalise(numbers + [0.0] * (len(SPLITS) - len(numbers)))


def sequences_of(bounds: SplitBounds, num_sequences: int) -> tuple[int, int]:
    """The first sequence of a split and the one after its last; halves are rounded to even."""
    begin, end = bounds
    return round(begin * float(num_sequences)), round(end * float(num_sequences))
