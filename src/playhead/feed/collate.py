"""Samples -> one micro-batch of numpy arrays.

Every field of the samples becomes a field of the batch: numbers an array, arrays (and lists of numbers) one array
padded along its first axis with `<field>_lengths` and `<field>_mask` beside it, anything else a list.
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
from playhead.recipe.words import nearest
from playhead.types import Array

Payload = dict[str, Any]
Filler = Callable[[], Sample]

_PLAIN = {bool, int, float}
_NEVER_ARRAYS = _PLAIN | {str, bytes, dict, NoneType}


@dataclass(frozen=True)
class Collation:
    """What the recipe says about batches: which fields, the sequence field, dtypes, and what to pad with."""

    fields: tuple[str, ...] | None = None
    sequence: str | None = "tokens"
    pad_values: dict[str, float] = field(default_factory=dict)
    dtypes: dict[str, Dtype] = field(default_factory=dict)


class Shape(Struct, frozen=True):
    """What a micro-batch is padded to: `length` of the sequence field, `size` in samples; None: as it comes."""

    length: int | None = None
    size: int | None = None


def padded(samples: list[Sample | None], how: Collation, shape: Shape, filler: Filler) -> Payload:
    """The samples as a batch. None is an empty slot: it has weight 0 and repeats another sample's values."""
    filled = _filled(samples, filler)
    columns = columns_of(filled, how.fields)
    aligned = frozenset[str]()
    if shape.length is not None:
        aligned = aligned_fields(filled, tuple([name for name, _ in columns]), how.sequence)
    payload: Payload = {}
    for name, values in columns:
        wanted = shape.length if name in aligned else None
        _add(payload, _column(name, values, how, wanted))
    _add(payload, {"weights": _weights(samples)})
    return payload if shape.size is None else _with_empty_rows(payload, how, len(samples), shape.size)


def packed(samples: list[Sample | None], how: Collation, length: int, filler: Filler) -> Payload:
    """The samples one after another in a bin of `length`, with what attention needs to keep them apart.

    `segment_ids` count samples from 1 (0 is padding), `positions` restart with each, `cu_seqlens` are the bounds. None
    is an empty slot: a sample of no length and weight 0.
    """
    assert how.sequence is not None, "the recipe check requires one"
    filled = _filled(samples, filler)
    _check_sequences(filled, how.sequence)
    names = field_names(filled, how.fields)
    aligned = aligned_fields(filled, names, how.sequence)
    sizes = [0 if sample is None else len(sample[how.sequence]) for sample in samples]
    length = max(length, sum(sizes))  # an overlong sample that goes alone has a bin of its own size
    bounds = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))).astype(np.int32)
    segments = np.zeros(length, np.int32)
    positions = np.zeros(length, np.int32)
    for i, (first, end) in enumerate(pairwise(bounds.tolist())):
        segments[first:end] = i + 1
        positions[first:end] = np.arange(end - first)
    payload: Payload = {"segment_ids": segments, "positions": positions, "cu_seqlens": bounds}
    for name in names:
        values = [sample[name] for sample in filled]
        if name in aligned:
            arrays, dtype = arrays_of(name, values, how.dtypes.get(name))
            out = _blank(name, (length, *_inner(name, arrays)), dtype, how.pad_values.get(name, 0))
            for array, first, size in zip(arrays, bounds.tolist(), sizes, strict=False):
                if size:
                    out[first : first + size] = array
            _add(payload, {name: out})
        else:
            _add(payload, {name: _entries(name, values, how.dtypes.get(name))})
    _add(payload, {"weights": _weights(samples)})
    return payload


def _check_sequences(samples: list[Sample], sequence: str) -> None:
    """Refuse what cannot be laid end to end in a pack."""
    for i, sample in enumerate(samples):
        if not _is_array(sample[sequence]):
            raise SampleError(
                f'field "{sequence}" of sample {i} of the micro-batch cannot be packed',
                found=f"{sample[sequence]!r}"[:80],
                expected="an array, or a list of numbers",
                fix="make it one in `map`, or name another field with `sequence`",
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
    """Whether all are dictionaries: none is an empty slot, or of a class that has its own idea of a missing field."""
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
    """The fields that run along the sequence: in every sample as long as its sequence field."""
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


def _column(name: str, values: list[Any], how: Collation, length: int | None) -> Payload:
    declared = how.dtypes.get(name)
    if {*map(type, values)} <= _NEVER_ARRAYS:
        return {name: _entries(name, values, declared)}
    if (found := _flat_column(name, values, how, length)) is not None:
        return found
    if not all(_is_array(value) for value in values):
        if any(getattr(value, "shape", ()) for value in values):
            kinds = sorted({type(value).__name__ for value in values})
            raise SampleError(
                f'field "{name}" is not of the same kind in every sample',
                found=", ".join(kinds),
                fix="make them alike in `map`, or give a `collate` function",
            )
        return {name: _entries(name, values, declared)}
    arrays, dtype = arrays_of(name, values, declared)
    return _padded_column(name, arrays, dtype, how.pad_values.get(name, 0), length)


def _entries(name: str, values: list[Any], declared: Dtype | None) -> Array | list[Any]:
    """A number for each sample as an array; other values as a list, unless the field has a dtype."""
    if {*map(type, values)} <= _PLAIN:
        return column_of(name, values, declared)
    other = next((slot for slot, value in enumerate(values) if not isinstance(value, NUMBERS)), None)
    if other is None:
        return column_of(name, values, declared)
    if declared is not None:
        raise misfit(name, values[other], declared, other)
    return values


def _flat_column(name: str, values: list[Any], how: Collation, length: int | None) -> Payload | None:
    """`_padded_column` of lists of plain numbers, all placed at once; None where it must be asked."""
    flat = flat_of(values, how.dtypes.get(name))
    if flat is None:
        return None
    sizes = np.array(list(map(len, values)), np.int64)
    longest = int(sizes.max())
    if length is not None and longest > length:
        return None
    mask = np.arange(longest if length is None else length) < sizes[:, None]
    out = _blank(name, mask.shape, flat.dtype, how.pad_values.get(name, 0))
    out[mask] = flat
    return {name: out, f"{name}_lengths": sizes, f"{name}_mask": mask}


def _padded_column(name: str, arrays: list[Array], dtype: Dtype, pad_value: float, length: int | None) -> Payload:
    inner = _inner(name, arrays)
    sizes = np.array([len(array) for array in arrays], np.int64)
    longest = int(sizes.max())
    if length is not None and longest > length:
        raise SampleError(
            f'field "{name}" is longer than `pad_to` allows',
            found=f"{longest:,}",
            expected=f"at most {length:,}",
            fix="raise `pad_to`, or bound the lengths (`overlong: truncate`)",
        )
    width = longest if length is None else length
    out = _blank(name, (len(arrays), width, *inner), dtype, pad_value)
    for i, array in enumerate(arrays):
        if len(array):
            out[i, : len(array)] = array
    mask = np.arange(width) < sizes[:, None]
    return {name: out, f"{name}_lengths": sizes, f"{name}_mask": mask}


def _inner(name: str, arrays: list[Array]) -> tuple[int, ...]:
    """The shape of the arrays beyond their first axis. Law: it is the same for all that hold anything."""
    found = {array.shape[1:] for array in arrays if len(array)}
    if len(found) > 1:
        raise SampleError(
            f'field "{name}" is ragged in more than its first axis',
            found=f"shapes {', '.join(str(array.shape) for array in arrays[:8])}",
            expected="arrays that differ in their first axis only",
            fix="pad the other axes in `map`, or give a `collate` function",
        )
    return found.pop() if found else max((array.shape[1:] for array in arrays), key=len)


def _blank(name: str, shape: tuple[int, ...], dtype: Dtype, pad_value: float) -> Array:
    return np.full(shape, _pad_value(name, pad_value, dtype), dtype) if pad_value else np.zeros(shape, dtype)


def _pad_value(name: str, value: float, dtype: Dtype) -> float:
    """The value in the field's own type. Law: it is never changed to fit."""
    # A recipe's number is a float: beyond 2^53 it may not be the whole number that was written.
    if not can_hold(value, dtype) or (dtype.kind in "iu" and abs(value) >= 2**53):
        raise SampleError(
            f'pad_values: field "{name}" cannot be padded with {value:g}',
            found=f"it holds numbers of type {dtype}",
            fix="pad with a number of that type, or make the field another type in `map` or `dtypes`",
        )
    return value


def _with_empty_rows(payload: Payload, how: Collation, size: int, wanted: int) -> Payload:
    """Pad the sample axis, so that compiled programs see few shapes; the rows added have weight 0."""
    if size >= wanted:
        return payload
    more = wanted - size
    found: Payload = {}
    for name, value in payload.items():
        if isinstance(value, np.ndarray):
            shape = (more, *value.shape[1:])
            empty = _blank(name, shape, value.dtype, how.pad_values.get(name, 0))
            found[name] = np.concatenate((value, empty))
        else:
            found[name] = [*value, *[None] * more]
    return found
