"""Values of a file as whole-number lengths: one value at a time with a message, or many at once.

Law: `whole_numbers` returns what `whole_number` returns for each value, or None if one of them would be refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from playhead.errors import DataError
from playhead.recipe.augment_lengths import changed_milliseconds
from playhead.recipe.augments import Augment
from playhead.recipe.units import LARGEST_LENGTH, UNKNOWN_LENGTH, ceil_div, milliseconds
from playhead.recipe.values import Length, Unit
from playhead.types import LengthArray

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "nothing"})()

UNKNOWN = UNKNOWN_LENGTH

_ROUNDING_NOISE = 1e-6
_EXPECTED = {
    "tokens": "a whole number of tokens, 0 or more",
    "seconds": "a number of seconds, 0 or more",
    "bytes": "a whole number of bytes, 0 or more",
    "characters": "a text",
}


def read_field(value: Any, field: str) -> Any:
    """A field of an object; `meta.lang` reaches inside another."""
    for part in field.split("."):
        if not isinstance(value, dict) or part not in value:
            return MISSING
        value = value[part]
    return value


def whole_number(value: Any, unit: Unit, what: str) -> int:
    """A length as the plan counts it: tokens and bytes as they are, seconds in milliseconds."""
    bad = isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0
    bad = bad or (isinstance(value, float) and not math.isfinite(value))
    if bad or (unit != "seconds" and value != int(value)):
        raise DataError(f"{what} is not a length", found=_shown(value), expected=_EXPECTED[unit])
    # Far beyond the limit a float has no exact milliseconds, but it is refused anyway.
    whole = milliseconds(value) if unit == "seconds" and value < LARGEST_LENGTH else int(value)
    if whole > LARGEST_LENGTH:
        raise DataError(
            f"{what} is too long",
            found=_shown(value),
            expected=f"at most {LARGEST_LENGTH:,} {'milliseconds' if unit == 'seconds' else unit}",
        )
    return max(whole, 0)


def whole_numbers(values: npt.NDArray[np.float64], unit: Unit) -> LengthArray | None:
    """The same for many values at once; None if any must be refused."""
    if unit == "seconds":
        with np.errstate(invalid="ignore"):
            whole = np.ceil(values * 1000 - 1e-6)
        good = (values >= 0) & (whole <= LARGEST_LENGTH)
        whole = np.maximum(whole, 0)
    else:
        whole = values
        good = (values >= 0) & (values <= LARGEST_LENGTH) & (np.floor(values) == values)
    return whole.astype(np.uint32) if bool(good.all()) else None


def planned_seconds(value: Any, length: Length, what: str, changes: Sequence[Augment]) -> int:
    """Seconds as the plan counts them after augmentations: milliseconds, or steps of `per_second`."""
    found = whole_number(value, "seconds", what)
    if length.per_second is None and not changes:
        return found
    planned = _after(np.array([found], np.uint32), length, changes)
    if planned is None:
        raise DataError(f"{what} is too long", found=_shown(value), expected=f"at most {LARGEST_LENGTH:,} when planned")
    return int(planned[0])


def all_planned_seconds(
    values: npt.NDArray[np.float64], length: Length, changes: Sequence[Augment]
) -> LengthArray | None:
    """The same for many values at once; None if any must be refused."""
    found = whole_numbers(values, "seconds")
    return None if found is None else _after(found, length, changes)


def _after(found: LengthArray, length: Length, changes: Sequence[Augment]) -> LengthArray | None:
    planned = changed_milliseconds(found.astype(np.int64), changes) if changes else found
    if length.per_second is not None:
        planned = np.ceil(planned * (length.per_second / 1000) - _ROUNDING_NOISE)
    return planned.astype(np.uint32) if planned.max(initial=0) <= LARGEST_LENGTH else None


def num_patches(width: int, height: int, patch: int) -> int:
    """The patches that cover an image."""
    found = ceil_div(width, patch) * ceil_div(height, patch)
    if found > LARGEST_LENGTH:
        raise DataError(
            "the image has too many patches",
            found=f"{width:,} x {height:,} pixels",
            expected=f"at most {LARGEST_LENGTH:,}",
        )
    return found


def added(terms: Sequence[LengthArray]) -> LengthArray | None:
    """Sums of lengths; UNKNOWN where a term is UNKNOWN. None if one is too long."""
    total: Any = np.array(terms, np.int64).sum(axis=0)
    unknown = (np.array(terms) == UNKNOWN).any(axis=0)
    total[unknown] = 0
    if total.max(initial=0) > LARGEST_LENGTH:
        return None
    total[unknown] = UNKNOWN
    found: LengthArray = total.astype(np.uint32)
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
