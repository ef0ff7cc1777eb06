"""A training job: everything that determines the contents and the names of its dataset caches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from playhead.errors import RecipeError

DEFAULT_SURPLUS = 0.005
MOST_PREFIXES = 32766
LARGEST_COUNT = 2**63 - 1  # of samples: the limit of an array


@dataclass(frozen=True)
class MegatronBlend:
    """Prefixes, each with a weight or none with any."""

    prefixes: tuple[str, ...]
    weights: tuple[float, ...] | None = None


MegatronBlends = tuple[MegatronBlend | None, MegatronBlend | None, MegatronBlend | None]


@dataclass(frozen=True)
class MegatronJob:
    """The settings of a job that affect its datasets.

    Either `blend` and `split`, or `blends` with one blend (or none) for each of train, valid and test. `sizes` are the
    samples needed from each split; None is one pass over the data. `tokenizer` is its entry in the cache's key.
    """

    sequence_length: int
    seed: int
    sizes: tuple[int | None, int | None, int | None]
    tokenizer: dict[str, Any]
    blend: MegatronBlend | None = None
    split: str | None = None
    blends: MegatronBlends | None = None
    multiple_validation_sets: bool = False
    keep_partial_validation: bool = False
    surplus: float = DEFAULT_SURPLUS

    def prefixes(self) -> list[str]:
        """The datasets of all splits, each once."""
        blends = [self.blend, *(self.blends or ())]
        return list(dict.fromkeys(prefix for blend in blends if blend is not None for prefix in blend.prefixes))


def blend_of(words: list[str], place: str) -> MegatronBlend:
    """A blend as it stands on a command line: prefixes, or weights and prefixes in turn."""
    words = [word.strip() for word in words]
    if not words:
        raise RecipeError(f"{place}: names no dataset", expected="prefixes, or weights and prefixes in turn")
    numbers = [_number(word) for word in words]
    count = sum(number is not None for number in numbers)
    if count == 0:
        return MegatronBlend(tuple(words))
    weights = tuple(number for number in numbers[::2] if number is not None)
    if not count == len(weights) == len(words) / 2:
        raise RecipeError(
            f"{place}: wrong number of weights",
            found=f"{count} numbers and {len(words) - count} prefixes: {' '.join(words)}",
            expected="a weight before every prefix, or none at all",
            fix="correct the list; a prefix that is itself a number needs a folder, as in ./7",
        )
    found = ", ".join(f"{weight:g}" for weight in weights)
    if not all(0 < weight < math.inf for weight in weights):
        raise RecipeError(
            f"{place}: a weight is not a positive number",
            found=found,
            fix="leave out the prefixes that should not be drawn",
        )
    if math.isinf(sum(weights)):
        raise RecipeError(
            f"{place}: the weights add up to more than a number can hold",
            found=found,
            fix="divide all of them by the same number",
        )
    return MegatronBlend(tuple(words[1::2]), weights)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
