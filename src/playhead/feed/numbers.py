"""The numbers of a field as arrays of one dtype.

Law: no number changes its value. Undeclared whole numbers are int64, fractions float64, and arrays keep their dtype; a
dtype declared in the recipe (`dtypes`) applies to every batch. A value that does not fit is an error. Only fractions
are rounded, to the nearest value of a declared float type.
"""

from __future__ import annotations

import struct
from functools import cache
from math import isfinite
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from playhead.errors import SampleError
from playhead.read.stored import StoredArray
from playhead.types import Array

Dtype = np.dtype[Any]

NUMBERS = (bool, int, float, np.number, np.bool_)
LISTS = (list, tuple)
_WHOLE = (int, np.integer)
_FRACTIONS = (float, np.floating)
_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)


class SlotError(SampleError):
    """An error about one sample of a micro-batch; `slot` is its position there."""

    slot: int = 0


def column_of(name: str, values: list[Any], declared: Dtype | None) -> Array:
    """One number for each sample, as an array."""
    array = _as_array(values)
    return _undeclared(name, array, values, None) if declared is None else _fitted(name, array, declared, None)


def arrays_of(name: str, values: list[Any], declared: Dtype | None) -> tuple[list[Array | StoredArray], Dtype]:
    """One array for each sample, and a dtype that holds them all; every array can be cast to it exactly."""
    alike = _alike(values, declared)
    if alike is not None:
        return values, alike
    arrays = [_converted(name, value, slot) for slot, value in enumerate(values)]
    if declared is not None:
        fitted = [_fitted(name, array, declared, slot) for slot, array in enumerate(arrays)]
        return [*fitted], declared
    pairs = enumerate(zip(arrays, values, strict=True))
    own = [_undeclared(name, array, value, slot) for slot, (array, value) in pairs]
    return [*own], _common(name, own)


def _alike(values: list[Any], declared: Dtype | None) -> Dtype | None:
    """The common dtype of numeric arrays, found without reading them; None where the values must be inspected."""
    if not all(type(value) is StoredArray or type(value) is np.ndarray for value in values):
        return None
    dtype, *others = {value.dtype for value in values}
    if others or dtype.kind not in "biuf":
        return None
    if declared is not None:
        # Writing casts smaller integers to the larger type; stored arrays are read without a cast.
        fits = declared == dtype or (_holds_all(declared, dtype) and all(type(value) is np.ndarray for value in values))
        return declared if fits else None
    return None if dtype == _FLOAT64 and not any(map(len, values)) else dtype


@cache
def _holds_all(dtype: Dtype, other: Dtype) -> bool:
    """Whether both are integer dtypes and `dtype` holds every number of `other`."""
    return dtype.kind in "iu" and other.kind in "biu" and np.can_cast(other, dtype)


def flat_of(values: list[Any], declared: Dtype | None) -> Array | None:
    """The concatenated numbers of lists, if all are whole or all are fractions; None where `arrays_of` must decide.

    Law: they are the arrays of `arrays_of` concatenated, in the dtype that it returns.
    """
    if {*map(type, values)} != {list}:
        return None
    numbers: list[Any] = []
    for value in values:
        numbers += value
    found = _packed(numbers)
    if found is None or declared is None or found.dtype == declared:
        return found
    return None if _misfits(found, declared).any() else found.astype(declared)


def _packed(numbers: list[Any]) -> Array | None:
    """Plain numbers as int64 or float64; None if there are none, if their types are mixed, or beyond int64."""
    kind = type(numbers[0]) if numbers else None
    try:
        if kind is int:
            msgspec.convert(numbers, list[int])  # the quickest check that all are whole numbers
            return np.frombuffer(struct.pack(f"{len(numbers)}q", *numbers), _INT64)
    except (msgspec.ValidationError, struct.error):
        return None
    if kind is float and list(map(type, numbers)).count(float) == len(numbers):
        return np.frombuffer(struct.pack(f"{len(numbers)}d", *numbers), _FLOAT64)
    return None


def misfit(name: str, value: Any, dtype: Dtype, slot: int) -> SlotError:
    """The error for a value that the dtype of its field cannot hold."""
    expected = f"a number that {dtype} can hold"
    if dtype.kind == "f" and isinstance(value, _WHOLE):
        expected = f"whole numbers up to {_largest_whole(dtype):,}, which {dtype} can hold exactly"
    return _at(
        slot,
        f'field "{name}" does not fit its dtype, {dtype}',
        found="null" if value is None else f"{value!r}"[:80],
        expected=expected,
        fix=f"declare another (`dtypes: {{{name}: ...}}` in the recipe), or convert it in `map`",
    )


def can_hold(value: Any, dtype: Dtype) -> bool:
    """Whether a dtype can hold a number exactly; fractions may be rounded to the nearest float."""
    if isinstance(value, bool | np.bool_):
        return True
    if not isinstance(value, _WHOLE + _FRACTIONS):
        return False
    if isinstance(value, _FRACTIONS) and dtype.kind == "f":
        with np.errstate(over="ignore"):
            return not isfinite(value) or isfinite(dtype.type(value))
    low, high = _whole_range(dtype)
    if isinstance(value, _FRACTIONS) and not (isfinite(value) and value == int(value)):
        return False
    return low <= int(value) <= high


def _converted(name: str, value: Any, slot: int) -> Array:
    try:
        return _as_array(value)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # as torch raises them for some tensors
        raise _at(
            slot,
            f'field "{name}" holds an array that cannot be converted to numpy',
            found=f"{type(value).__name__} of {getattr(value, 'dtype', 'no dtype')}: {error}",
            fix="in `map`, make it a dense array without gradients, of a dtype that numpy has (like `tensor.float()`)",
        ) from error


def _as_array(value: Any) -> Array:
    """A list of numbers, or an array, as an array of the same numbers.

    It holds objects where numpy would choose float64 for whole numbers: beyond int64, or signed mixed with unsigned.
    """
    array = np.asarray(value)
    if array.dtype.kind != "f" or not array.size or not isinstance(value, LISTS):
        return array
    mixed = any(isinstance(item, _FRACTIONS) for item in value)
    if mixed and not (np.abs(array) >= _largest_whole(array.dtype)).any():  # 2^53 may have been 2^53 + 1
        return array
    return np.array(value, object) if any(isinstance(item, _WHOLE) for item in value) else array


def _undeclared(name: str, array: Array, value: Any, slot: int | None) -> Array:
    """The array in its default dtype. `slot` is None for a column, which has one number for each sample."""
    kind = array.dtype.kind
    if kind not in "uO" or not isinstance(value, LISTS):
        if kind == "O":
            raise _not_an_array(name, array, slot or 0)
        return array
    if all(isinstance(item, np.unsignedinteger) for item in value):
        return array
    for at, item in enumerate(value):
        if isinstance(item, _WHOLE) and not -(2**63) <= int(item) < 2**63:
            raise _beyond_int64(name, int(item), at if slot is None else slot)
    if any(isinstance(item, _FRACTIONS) for item in value):
        return _fitted(name, array, _FLOAT64, slot)
    return array.astype(_INT64)


def _common(name: str, arrays: list[Array]) -> Dtype:
    """The dtype that holds all arrays; empty ones are ignored."""
    if len({array.dtype for array in arrays}) == 1 and arrays[0].dtype != _FLOAT64:
        return arrays[0].dtype
    filled = [(slot, array) for slot, array in enumerate(arrays) if len(array)]
    dtype = np.result_type(*(array.dtype for _, array in filled or enumerate(arrays)))
    if not filled:  # numpy's guess for an empty list is float64; a sequence of tokens is likelier
        return _INT64 if dtype == _FLOAT64 else dtype
    if dtype.kind == "f":
        if all(array.dtype.kind in "biu" for _, array in filled):
            raise _signed_and_unsigned(name, filled)
        for slot, array in filled:
            _check(name, array, dtype, slot)
    return dtype


def _fitted(name: str, array: Array, dtype: Dtype, slot: int | None) -> Array:
    """The same numbers in another dtype. `slot` is None for a column."""
    if array.dtype == dtype:
        return array
    _check(name, array, dtype, slot)
    return array.astype(dtype)


def _check(name: str, array: Array, dtype: Dtype, slot: int | None) -> None:
    if array.dtype == dtype and dtype.kind in "biuf":
        return
    bad = _misfits(array, dtype).ravel()
    if bad.any():
        at = int(np.argmax(bad))
        raise misfit(name, array.ravel()[at : at + 1].tolist()[0], dtype, at if slot is None else slot)


def _misfits(array: Array, dtype: Dtype) -> npt.NDArray[np.bool_]:
    """Which numbers the dtype cannot hold exactly."""
    kind = array.dtype.kind
    if kind == "O":
        return np.array([not can_hold(item, dtype) for item in array.ravel().tolist()], np.bool_)
    if kind not in "biuf" or array.dtype == dtype or kind == "b":
        return np.full(array.shape, kind not in "biuf")
    if dtype.kind == "b":
        return np.asarray((array != 0) & (array != 1))
    if kind != "f":
        low, high = _whole_range(dtype)
        own = np.iinfo(array.dtype)
        return np.asarray((array < max(low, own.min)) | (array > min(high, own.max)))
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.asarray(np.isfinite(array) & ~np.isfinite(array.astype(dtype)))
    wide = array.astype(np.result_type(array.dtype, _FLOAT64))
    low, high = _whole_range(dtype)  # `low` and `high + 1` are powers of two: floats hold them exactly
    return np.asarray(~((wide >= float(low)) & (wide < float(high + 1)) & (wide == np.trunc(wide))))


def _whole_range(dtype: Dtype) -> tuple[int, int]:
    """The range of consecutive whole numbers that a dtype holds exactly."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "f":
        return -_largest_whole(dtype), _largest_whole(dtype)
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _largest_whole(dtype: Dtype) -> int:
    return 1 << (int(np.finfo(dtype).nmant) + 1)


def _beyond_int64(name: str, value: int, slot: int) -> SlotError:
    unsigned = 0 <= value < 2**64
    remedy = (
        f"declare it in the recipe: `dtypes: {{{name}: uint64}}`" if unsigned else "make it smaller, or text, in `map`"
    )
    return _at(
        slot,
        f'field "{name}" holds a whole number beyond int64',
        found=str(value)[:80],
        expected="-2^63 to 2^63 - 1: whole numbers without a declared dtype are int64",
        fix=f"{remedy}; or leave the field out with `fields: [...]`",
    )


def _signed_and_unsigned(name: str, filled: list[tuple[int, Array]]) -> SlotError:
    kinds = sorted({str(array.dtype) for _, array in filled})
    slot = next(slot for slot, array in filled if array.dtype.kind == "u")
    return _at(
        slot,
        f'field "{name}" mixes integer dtypes that only a float dtype can hold',
        found=", ".join(kinds),
        fix=f"declare one in the recipe (`dtypes: {{{name}: uint64}}` or `int64`), or convert them in `map`",
    )


def _not_an_array(name: str, array: Array, slot: int) -> SlotError:
    return _at(
        slot,
        f'field "{name}" holds values that are not numbers',
        found=f"an array of objects like {array.ravel().tolist()[0]!r}"[:80] if array.size else "an array of objects",
        expected="numbers that fit 64 bits",
        fix="convert them to numbers in `map`, leave the field out with `fields: [...]`, or give a `collate` function",
    )


def _at(slot: int, problem: str, *, found: str, fix: str, expected: str | None = None) -> SlotError:
    error = SlotError(problem, found=found, expected=expected, fix=fix)
    error.slot = slot
    return error
