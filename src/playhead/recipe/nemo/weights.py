"""The weights of a list, as NeMo draws from its entries."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from typing import Any

from playhead.errors import RecipeError

_DIGITS = 12


def checked_weights(given: Sequence[Any], places: Sequence[str]) -> list[float] | None:
    """The weights of the entries of a list, or None if none has one. A weight on some of several is refused."""
    missing = [place for place, weight in zip(places, given, strict=True) if weight is None]
    if len(missing) == len(given):
        return None
    if missing and len(given) > 1:
        weighted = next(place for place, weight in zip(places, given, strict=True) if weight is not None)
        raise RecipeError(
            f"{missing[0]}: has no weight, but {weighted} has one",
            found=f"{len(missing)} of {len(given)} entries without a weight",
            expected="a weight on every entry of a list, or on none, as NeMo requires",
            fix="add the weights that are missing",
        )
    for place, weight in zip(places, given, strict=True):
        if not isinstance(weight, (int, float)) or isinstance(weight, bool) or not (weight > 0 and isfinite(weight)):
            raise RecipeError(
                f"{place}.weight: a weight must be a number above 0",
                found=str(weight),
                fix="give a number above 0, or remove the entry",
            )
    return list(given)


def reweighted(weights: Sequence[float], temperature: float) -> list[float]:
    """NeMo's reweighting: the powers of the weights, normalised. At temperature 1 the weights stay as they are."""
    if temperature == 1:
        return list(weights)
    largest = max(weights)
    powers = [(weight / largest) ** temperature for weight in weights]
    return [_rounded(power / sum(powers)) for power in powers]


def _rounded(share: float) -> float:
    return float(f"{share:.{_DIGITS}g}")


def level_temperatures(given: Any, depth: int, place: str) -> list[float]:
    """The temperature of every level of `input_cfg`, outermost first."""
    if _is_number(given):
        return [float(given)] * depth
    if not isinstance(given, list) or not all(map(_is_number, given)):
        raise RecipeError(
            f"{place}: is neither a number nor a list of numbers",
            found=str(given),
            expected="one number for each level",
        )
    if len(given) != depth:
        raise RecipeError(
            f"{place}: needs one number for each level of `input_cfg`",
            found=f"{len(given)} temperatures for {depth} levels",
            expected="one number for each level, or one for all",
        )
    return [float(each) for each in given]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
