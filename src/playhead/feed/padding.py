"""Columns of a batch: the values of one field, each written once into an array padded along its first axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np

from playhead.errors import SampleError
from playhead.feed.numbers import LISTS, NUMBERS, Dtype, arrays_of, can_hold, column_of, flat_of, misfit
from playhead.read.stored import StoredArray, read_into
from playhead.recipe.values import Masks
from playhead.types import Array

Payload = dict[str, Any]
Empty = Callable[[tuple[int, ...], Dtype], Array]  # allocates an array, like `np.empty`

_PLAIN = {bool, int, float}
_NEVER_ARRAYS = _PLAIN | {str, bytes, dict, NoneType}
_BOOL = np.dtype(np.bool_)
_FILLED_WHOLE_BYTES = 1 << 16
_SHORT_ROW_BYTES = 1 << 12  # filling it takes no longer than the loop around it


@dataclass(frozen=True)
class Collation:
    """What the recipe says about batches: which fields, the sequence field, dtypes, what to pad with, which masks."""

    fields: tuple[str, ...] | None = None
    sequence: str | None = "tokens"
    pad_values: dict[str, float] = field(default_factory=dict)
    dtypes: dict[str, Dtype] = field(default_factory=dict)
    masks: Masks = "always"


class Making:
    """The arrays of one micro-batch under construction, and the stored arrays still to be read into them."""

    def __init__(self, how: Collation, num_rows: int, empty: Empty) -> None:
        self.how, self.num_rows = how, num_rows
        self._empty = empty
        self._unread: list[tuple[StoredArray, Array]] = []

    def of(self, num_rows: int) -> Making:
        """The same batch, for columns with another number of rows."""
        other = Making(self.how, num_rows, self._empty)
        other._unread = self._unread
        return other

    def array(self, shape: tuple[int, ...], dtype: Dtype) -> Array:
        """An uninitialized array, from `empty` unless it holds objects."""
        return np.empty(shape, dtype) if dtype.hasobject else self._empty(shape, dtype)

    def column(self, numbers: Array, name: str | None = None) -> Array:
        """A number for each sample, and padding in the rows added."""
        out = self.array((self.num_rows,), numbers.dtype)
        out[: len(numbers)] = numbers
        if self.num_rows > len(numbers):
            out[len(numbers) :] = 0 if name is None else self.padding(name, numbers.dtype)
        return out

    def padding(self, name: str, dtype: Dtype) -> Array:
        """What a field is padded with: an array without axes."""
        value = self.how.pad_values.get(name, 0)
        return np.full((), _pad_value(name, value, dtype), dtype) if value else np.zeros((), dtype)

    def read_later(self, array: StoredArray, place: Array) -> None:
        if array.dtype == place.dtype:
            self._unread.append((array, place))
        else:
            place[...] = np.asarray(array)

    def unbatched(self, value: Any) -> Any:
        """A value that stays separate for each sample; a stored array gets its own memory."""
        if type(value) is not StoredArray:
            return value
        place: Array = np.empty(value.shape, value.dtype)
        self._unread.append((value, place))
        return place

    def read(self) -> None:
        """Read all outstanding stored arrays together."""
        read_into(self._unread)


def is_array(value: Any) -> bool:
    if isinstance(value, LISTS):
        return {*map(type, value)} <= _PLAIN or all(isinstance(item, NUMBERS) for item in value)
    return bool(getattr(value, "shape", ()))  # arrays of numpy, torch or jax alike


def padded_values(name: str, values: list[Any], making: Making, length: int | None) -> Payload:
    if {*map(type, values)} <= _NEVER_ARRAYS:
        return {name: entries(name, values, making)}
    if (flat := flat_of(values, making.how.dtypes.get(name))) is not None:
        return _flat_column(name, flat, list(map(len, values)), making, length)
    if not all(is_array(value) for value in values):
        if any(getattr(value, "shape", ()) for value in values):
            kinds = sorted({"ndarray" if type(value) is StoredArray else type(value).__name__ for value in values})
            raise SampleError(
                f'field "{name}" has different types across samples',
                found=", ".join(kinds),
                fix="convert them to one type in `map`, or give a `collate` function",
            )
        return {name: entries(name, values, making)}
    inputs = arrays_of(name, values, making.how.dtypes.get(name))
    return padded_arrays(name, *inputs, making, length)


def entries(name: str, values: list[Any], making: Making) -> Array | list[Any]:
    """A number for each sample as an array; other values as a list, unless the field has a dtype."""
    declared = making.how.dtypes.get(name)
    if {*map(type, values)} <= _PLAIN:
        return making.column(column_of(name, values, declared), name)
    other = next((slot for slot, value in enumerate(values) if not isinstance(value, NUMBERS)), None)
    if other is None:
        return making.column(column_of(name, values, declared), name)
    if declared is not None:
        raise misfit(name, values[other], declared, other)
    return [*map(making.unbatched, values), *[None] * (making.num_rows - len(values))]


def _flat_column(name: str, flat: Array, sizes: list[int], making: Making, length: int | None) -> Payload:
    """`padded_arrays` for the concatenated numbers of all samples, which are placed at once."""
    width = _width(name, sizes, length)
    out = making.array((making.num_rows, width), flat.dtype)
    padding = making.padding(name, flat.dtype)
    found = _with_lengths(name, out, sizes, making)
    if flat.size == out.size:
        out[...] = flat.reshape(out.shape)
        return found
    _pad(out, sizes, padding)
    mask = found.get(f"{name}_mask")
    out[np.arange(width) < found[f"{name}_lengths"][:, None] if mask is None else mask] = flat
    return found


def padded_arrays(
    name: str, arrays: list[Array | StoredArray], dtype: Dtype, making: Making, length: int | None
) -> Payload:
    inner = inner_shape(name, arrays)
    sizes = [len(array) for array in arrays]
    width = _width(name, sizes, length)
    if making.num_rows > len(arrays):
        dtype = np.result_type(dtype, dtype)  # a batch with rows added has the native byte order
    out = making.array((making.num_rows, width, *inner), dtype)
    _pad(out, sizes, making.padding(name, dtype))
    for i, array in enumerate(arrays):
        if sizes[i] and type(array) is StoredArray:
            making.read_later(array, out[i, : sizes[i]])
        elif sizes[i]:
            out[i, : sizes[i]] = array
    return _with_lengths(name, out, sizes, making)


def no_arrays(name: str, dtype: Dtype, making: Making) -> Payload:
    """The fields of `padded_arrays` where there is no array."""
    return _with_lengths(name, making.array((0, 0), dtype), [], making)


def _width(name: str, sizes: list[int], length: int | None) -> int:
    """The width of a padded array: `length`, or that of the longest sample. Law: every sample fits."""
    longest = max(sizes)
    if length is not None and longest > length:
        raise SampleError(
            f'field "{name}" is longer than `pad_to` allows',
            found=f"{longest:,}",
            expected=f"at most {length:,}",
            fix="raise `pad_to`, or bound the lengths (`overlong: truncate`)",
        )
    return longest if length is None else length


def _with_lengths(name: str, out: Array, sizes: list[int], making: Making) -> Payload:
    """A padded array with the lengths of its samples and, if the recipe wants one, its mask."""
    lengths = making.column(np.array(sizes, np.int64))
    found: Payload = {name: out, f"{name}_lengths": lengths}
    is_padded = min(sizes, default=0) < out.shape[1] or making.num_rows > len(sizes)
    masks = making.how.masks
    if masks == "always" or (masks == "padded" and is_padded):
        found[f"{name}_mask"] = _mask(making.array(out.shape[:2], _BOOL), lengths)
    return found


def _mask(out: Array, lengths: Array) -> Array:
    """True where a sample is."""
    if out.nbytes <= _FILLED_WHOLE_BYTES:
        return np.less(np.arange(out.shape[1]), lengths[:, None], out=out)
    for row, size in zip(out, lengths.tolist(), strict=True):
        row[:size] = True
        row[size:] = False
    return out


def _pad(out: Array, sizes: list[int], padding: Array) -> None:
    """Fill the positions past each sample; a small array, or one with short rows, is filled whole in one call."""
    if out.nbytes <= max(_FILLED_WHOLE_BYTES, len(out) * _SHORT_ROW_BYTES):
        out[...] = padding
        return
    for row, size in zip(out, sizes, strict=False):
        if size < len(row):
            row[size:] = padding
    out[len(sizes) :] = padding


def inner_shape(name: str, arrays: list[Array | StoredArray]) -> tuple[int, ...]:
    """The shape of the arrays beyond their first axis. Law: it is the same for all arrays that are not empty."""
    found = {array.shape[1:] for array in arrays if len(array)}
    if len(found) > 1:
        raise SampleError(
            f'field "{name}" is ragged in more than its first axis',
            found=f"shapes {', '.join(str(array.shape) for array in arrays[:8])}",
            expected="arrays that differ in their first axis only",
            fix="resize images with `image: {size: [width, height], mode: RGB}`, pad the other axes in `map`, "
            "or set `collate: list`",
        )
    return found.pop() if found else max((array.shape[1:] for array in arrays), key=len)


def _pad_value(name: str, value: float, dtype: Dtype) -> float:
    """The pad value in the type of the field. Law: it is never changed to fit."""
    # A number in a recipe is a float: beyond 2^53 it may differ from the integer that was written.
    is_number = dtype.kind in "biufc" and can_hold(value, np.empty(0, dtype).real.dtype)
    if not is_number or (dtype.kind in "iu" and abs(value) >= 2**53):
        raise SampleError(
            f'pad_values: field "{name}" cannot be padded with {value:g}',
            found=f"it holds values of type {dtype}",
            fix="pad with a number of that type, or convert the field in `map` or `dtypes`",
        )
    return value
