"""Where two samples differ: the first field and element that are not the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_SHOWN = 60


def difference(first: Any, second: Any, place: str = "") -> str | None:
    """What differs, human-readable; None where nothing does.

    Values of classes that compare by identity are compared by what they hold.
    """
    if type(first) is not type(second):
        return f"{place or 'the result'}: {type(first).__name__}, then {type(second).__name__}"
    if isinstance(first, Mapping):
        return _of_mappings(first, second, place)
    if isinstance(first, list | tuple):
        return _of_sequences(first, second, place)
    if hasattr(first, "__array__"):
        return _of_arrays(np.asarray(first), np.asarray(second), place)
    if getattr(type(first), "__eq__", None) is object.__eq__:
        return difference(getattr(first, "__dict__", None), getattr(second, "__dict__", None), place)
    same = first == second or (isinstance(first, float) and first != first and second != second)  # noqa: PLR0124 - NaN
    return None if same else f"{place or 'the result'}: {_shown(first)}, then {_shown(second)}"


def _of_mappings(first: Mapping[Any, Any], second: Mapping[Any, Any], place: str) -> str | None:
    if [*first] != [*second]:
        keys = f"{', '.join(map(str, first))}; then {', '.join(map(str, second))}"
        return f"{place or 'the sample'}: fields {_shown(keys)}"
    found = (difference(first[name], second[name], f"{place}.{name}" if place else str(name)) for name in first)
    return next((each for each in found if each is not None), None)


def _of_sequences(first: Sequence[Any], second: Sequence[Any], place: str) -> str | None:
    if len(first) != len(second):
        return f"{place}: {len(first):,} elements, then {len(second):,}"
    found = (difference(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(first, second, strict=True)))
    return next((each for each in found if each is not None), None)


def _of_arrays(first: Any, second: Any, place: str) -> str | None:
    if first.shape != second.shape or first.dtype != second.dtype:
        return f"{place}: {first.dtype} {first.shape}, then {second.dtype} {second.shape}"
    numbers = first.dtype.kind in "fc"
    unlike = ~np.asarray(np.isclose(first, second, rtol=0, atol=0, equal_nan=True) if numbers else first == second)
    if not unlike.any():
        return None
    at = tuple(int(i) for i in np.argwhere(unlike)[0])
    where = f"{place}[{', '.join(map(str, at))}]" if at else place
    return f"{where}: {_shown(first[at])}, then {_shown(second[at])} ({int(unlike.sum()):,} of {unlike.size:,} differ)"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
