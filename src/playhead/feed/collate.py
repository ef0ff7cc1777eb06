"""Samples -> one micro-batch of numpy arrays.

Every field of the samples becomes a field of the batch: numbers an array, arrays (and lists of numbers) one array
padded along its first axis with `<field>_lengths` and (unless the recipe's `masks` leaves it out) `<field>_mask` beside
it, anything else a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.errors import SampleError
from playhead.feed.numbers import LISTS, NUMBERS, Dtype, arrays_of, can_hold, column_of, flat_of, misfit
from playhead.formats.rows import Sample
from playhead.read.stored import StoredArray, read_into
from playhead.recipe.values import Masks
from playhead.recipe.words import nearest
from playhead.types import Array

Payload = dict[str, Any]
Filler = Callable[[], Sample]
Empty = Callable[[tuple[int, ...], Dtype], Array]  # allocates an array, like `np.empty`

_PLAIN = {bool, int, float}
_NEVER_ARRAYS = _PLAIN | {str, bytes, dict, NoneType}
_BOOL, _INT32 = np.dtype(np.bool_), np.dtype(np.int32)
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


class Shape(Struct, frozen=True):
    """What a micro-batch is padded to: `length` of the sequence field, `size` in samples; None: as it comes."""

    length: int | None = None
    size: int | None = None


def padded(
    samples: list[Sample | None], how: Collation, shape: Shape, filler: Filler, empty: Empty = np.empty
) -> Payload:
    """The samples as a batch. None is an empty slot: it has weight 0 and repeats another sample's values.

    Laws: each number is written once, into an array from `empty`; stored arrays are read straight into place.
    Where the shape has a `size`, the batch has that many rows: those added hold padding and have weight 0.
    """
    filled = _filled(samples, filler)
    columns = columns_of(filled, how.fields)
    aligned = frozenset[str]()
    if shape.length is not None:
        aligned = aligned_fields(filled, tuple([name for name, _ in columns]), how.sequence)
    making = _Making(how, max(len(samples), shape.size or 0), empty)
    payload: Payload = {}
    for name, values in columns:
        wanted = shape.length if name in aligned else None
        _add(payload, _column(name, values, making, wanted))
    _add(payload, {"weights": making.column(_weights(samples))})
    making.read()
    return payload


def packed(
    samples: list[Sample | None], how: Collation, length: int, filler: Filler, empty: Empty = np.empty
) -> Payload:
    """The samples one after another in a bin of `length`, with the arrays that attention needs to separate them.

    `segment_ids` count samples from 1 (0 is padding), `positions` restart with each, `cu_seqlens` are the bounds. None
    is an empty slot: a sample of no length and weight 0. Arrays are made as `padded` makes them.
    """
    assert how.sequence is not None, "the recipe check requires one"
    filled = _filled(samples, filler)
    _check_sequences(filled, how.sequence)
    names = field_names(filled, how.fields)
    aligned = aligned_fields(filled, names, how.sequence)
    sizes = [0 if sample is None else len(sample[how.sequence]) for sample in samples]
    length = max(length, sum(sizes))  # an overlong sample alone in its bin sets the size of that bin
    making = _Making(how, len(samples), empty)
    bounds = making.array((len(sizes) + 1,), _INT32)
    bounds[0] = 0
    bounds[1:] = np.cumsum(np.array(sizes, np.int64))
    segments, positions = making.array((length,), _INT32), making.array((length,), _INT32)
    for i, (first, end) in enumerate(pairwise(bounds.tolist())):
        segments[first:end] = i + 1
        positions[first:end] = np.arange(end - first)
    segments[sum(sizes) :] = positions[sum(sizes) :] = 0
    payload: Payload = {"segment_ids": segments, "positions": positions, "cu_seqlens": bounds}
    for name in names:
        values = [sample[name] for sample in filled]
        if name not in aligned:
            _add(payload, {name: _entries(name, values, making)})
            continue
        arrays, dtype = arrays_of(name, values, how.dtypes.get(name))
        out = making.array((length, *_inner(name, arrays)), dtype)
        out[sum(sizes) :] = making.padding(name, dtype)
        for array, first, size in zip(arrays, bounds.tolist(), sizes, strict=False):
            if size and type(array) is StoredArray:
                making.read_later(array, out[first : first + size])
            elif size:
                out[first : first + size] = array
        _add(payload, {name: out})
    _add(payload, {"weights": making.column(_weights(samples))})
    making.read()
    return payload


class _Making:
    """The arrays of one micro-batch under construction, and the stored arrays still to be read into them."""

    def __init__(self, how: Collation, num_rows: int, empty: Empty) -> None:
        self.how, self.num_rows = how, num_rows
        self._empty = empty
        self._unread: list[tuple[StoredArray, Array]] = []

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


def _check_sequences(samples: list[Sample], sequence: str) -> None:
    """Refuse samples that cannot be concatenated in a pack."""
    for i, sample in enumerate(samples):
        if not _is_array(sample[sequence]):
            raise SampleError(
                f'field "{sequence}" of sample {i} of the micro-batch cannot be packed',
                found=f"{sample[sequence]!r}"[:80],
                expected="an array, or a list of numbers",
                fix="convert it in `map`, or name another field with `sequence`",
            )


def _filled(samples: list[Sample | None], filler: Filler) -> list[Sample]:
    """The samples, with another's values in empty slots."""
    if _are_plain(samples):
        return samples  # type: ignore[return-value]  # none is None
    stand_in = next((sample for sample in samples if sample is not None), None)
    if stand_in is None:
        stand_in = filler()
    return [stand_in if sample is None else sample for sample in samples]


def _are_plain(samples: Sequence[Sample | None]) -> bool:
    """Whether all are plain dictionaries: no empty slots, and no classes with custom handling of missing keys."""
    return {*map(type, samples)} == {dict}


def _weights(samples: list[Sample | None]) -> Array:
    if _are_plain(samples):
        return np.ones(len(samples), np.float32)
    return np.array([sample is not None for sample in samples], np.float32)


def _add(payload: Payload, fields: Payload) -> None:
    taken = payload.keys() & fields.keys()
    if taken:
        name = min(taken)
        raise SampleError(
            f'field "{name}" of the samples has the name of a field that batching adds',
            fix="rename it in `map`, leave it out with `fields: [...]`, or give a `collate` function",
        )
    payload |= fields


def columns_of(samples: list[Sample], wanted: tuple[str, ...] | None) -> list[tuple[str, list[Any]]]:
    """The fields of the batch with their values. Law: the fields are those of `field_names`."""
    names = tuple(samples[0]) if wanted is None else wanted
    if _are_plain(samples) and (wanted is not None or {*map(len, samples)} == {len(names)}):
        with suppress(KeyError):
            return [(name, list(map(itemgetter(name), samples))) for name in names]
    return [(name, [sample[name] for sample in samples]) for name in field_names(samples, wanted)]


def field_names(samples: list[Sample], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The fields of the batch. Law: every sample has every one of them."""
    names = wanted if wanted is not None else tuple(samples[0])
    for i, sample in enumerate(samples):
        missing = [name for name in names if name not in sample]
        extra = [] if wanted is not None else [name for name in sample if name not in samples[0]]
        if missing or extra:
            first, other = (missing[0], i) if missing else (extra[0], 0)
            if all(first not in sample for sample in samples):
                raise _in_no_sample(first, samples)
            raise SampleError(
                f'field "{first}" is in some samples of the micro-batch and not in others',
                found=f"sample {other} of {len(samples)} has only: {', '.join(samples[other]) or 'nothing'}",
                expected="the same fields in every sample",
                fix="name the fields to deliver with `fields: [...]`, add them in `map`, or give a `collate` function",
            )
    return names


def _in_no_sample(name: str, samples: list[Sample]) -> SampleError:
    known = [*dict.fromkeys(field for sample in samples for field in sample)]
    meant = "".join(f"did you mean `{near}`? " for near in nearest(name, known)[:1])
    return SampleError(
        f'fields: field "{name}" is in no sample of the micro-batch',
        found=f"fields: {', '.join(known) or 'none'}",
        fix=f"{meant}Correct `fields: [...]`, or add the field in `map`",
    )


def aligned_fields(samples: list[Sample], names: tuple[str, ...], sequence: str | None) -> frozenset[str]:
    """The fields aligned with the sequence: in every sample as long as its sequence field."""
    if sequence is None or any(sequence not in sample or not _is_array(sample[sequence]) for sample in samples):
        return frozenset()
    sizes = [len(sample[sequence]) for sample in samples]
    return frozenset(
        name
        for name in names
        if name == sequence
        or all(
            _is_array(sample[name]) and len(sample[name]) == size for sample, size in zip(samples, sizes, strict=True)
        )
    )


def _is_array(value: Any) -> bool:
    if isinstance(value, LISTS):
        return {*map(type, value)} <= _PLAIN or all(isinstance(item, NUMBERS) for item in value)
    return bool(getattr(value, "shape", ()))  # arrays of numpy, torch or jax alike


def _column(name: str, values: list[Any], making: _Making, length: int | None) -> Payload:
    if {*map(type, values)} <= _NEVER_ARRAYS:
        return {name: _entries(name, values, making)}
    if (flat := flat_of(values, making.how.dtypes.get(name))) is not None:
        return _flat_column(name, flat, list(map(len, values)), making, length)
    if not all(_is_array(value) for value in values):
        if any(getattr(value, "shape", ()) for value in values):
            kinds = sorted({"ndarray" if type(value) is StoredArray else type(value).__name__ for value in values})
            raise SampleError(
                f'field "{name}" has different types across samples',
                found=", ".join(kinds),
                fix="convert them to one type in `map`, or give a `collate` function",
            )
        return {name: _entries(name, values, making)}
    inputs = arrays_of(name, values, making.how.dtypes.get(name))
    return _padded_column(name, *inputs, making, length)


def _entries(name: str, values: list[Any], making: _Making) -> Array | list[Any]:
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


def _flat_column(name: str, flat: Array, sizes: list[int], making: _Making, length: int | None) -> Payload:
    """`_padded_column` for the concatenated numbers of all samples, which are placed at once."""
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


def _padded_column(
    name: str, arrays: list[Array | StoredArray], dtype: Dtype, making: _Making, length: int | None
) -> Payload:
    inner = _inner(name, arrays)
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


def _with_lengths(name: str, out: Array, sizes: list[int], making: _Making) -> Payload:
    """A padded array with the lengths of its samples and, if the recipe wants one, its mask."""
    lengths = making.column(np.array(sizes, np.int64))
    found: Payload = {name: out, f"{name}_lengths": lengths}
    is_padded = min(sizes) < out.shape[1] or making.num_rows > len(sizes)
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


def _inner(name: str, arrays: list[Array | StoredArray]) -> tuple[int, ...]:
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
