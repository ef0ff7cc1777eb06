"""Lengths in whole numbers: tokens, bytes and characters as they are, seconds as milliseconds."""

from __future__ import annotations

from math import ceil, isqrt

from playhead.errors import RecipeError
from playhead.recipe.values import Batching, Bucket, Budget, Unit

UNKNOWN_LENGTH = 2**32 - 1  # of a row whose length is unknown
LARGEST_LENGTH = UNKNOWN_LENGTH - 1
_ROUNDING_NOISE = 1e-6  # a fraction of a millisecond: 2.3 s * 1000 is 2299.9999999999995


def milliseconds(seconds: float) -> int:
    """Seconds as milliseconds, rounded up, whatever the last bit of the binary fraction says."""
    return ceil(seconds * 1000 - _ROUNDING_NOISE)


def in_units(value: float, unit: Unit, where: str) -> int:
    """A length as the user wrote it, in the whole numbers the plan works in."""
    if unit == "seconds":
        return milliseconds(value)
    if value != int(value):
        raise RecipeError(
            f"{where}: a length in {unit} must be a whole number",
            found=str(value),
            expected="a whole number, or sources whose length has `unit: seconds`",
        )
    return int(value)


def whole_unit(unit: Unit) -> str:
    """The unit of the plan's whole numbers."""
    return "milliseconds" if unit == "seconds" else unit


def readable(length: float, unit: Unit) -> str:
    """A planned length as a user would write it."""
    return f"{length / 1000:,.2f} s" if unit == "seconds" else f"{length:,.0f}"


def length_limit(batching: Batching, unit: Unit, where: str) -> int | None:
    """The longest sample a micro-batch can hold, in the plan's units; None where there is no limit."""
    if isinstance(batching, Budget):
        budget = in_units(batching.budget, unit, f"{where}.budget")
        if batching.quadratic is None:
            return budget
        return longest_within(budget, in_units(batching.quadratic, unit, f"{where}.quadratic"))
    if isinstance(batching, Bucket):
        if batching.edges is None:
            return None
        largest = max(edge[0] if isinstance(edge, tuple) else edge for edge in batching.edges)
        return in_units(largest, unit, f"{where}.edges")
    if batching.max_length is None:
        return None
    return in_units(batching.max_length, unit, f"{where}.max_length")


def longest_within(budget: int, quadratic: int) -> int:
    """The largest d with d + ceil(d * d / quadratic) <= budget."""
    guess = (isqrt(quadratic * quadratic + 4 * quadratic * budget) - quadratic) // 2
    while guess + 1 + ceil_div((guess + 1) ** 2, quadratic) <= budget:
        guess += 1
    while guess > 0 and guess + ceil_div(guess**2, quadratic) > budget:
        guess -= 1
    return guess


def ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
