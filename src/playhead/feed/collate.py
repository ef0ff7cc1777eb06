"""Samples -> one micro-batch of numpy arrays.

Every field of the samples becomes a field of the batch: numbers an array, arrays (and lists of numbers) one array
padded along its first axis with `<field>_lengths` and `<field>_mask` beside it, anything else a list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from playhead.errors import DataError
from playhead.types import Array

Sample = dict[str, Any]
Payload = dict[str, Any]

_NUMBERS = (bool, int, float, np.number, np.bool_)


@dataclass(frozen=True)
class Collation:
    """What the recipe says about batches: which fields, the sequence field, and what to pad with."""

    fields: tuple[str, ...] | None = None
    sequence: str = "tokens"
    pad_values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """What a micro-batch is padded to: `length` of the sequence field, `size` in samples; None: as it comes."""

    length: int | None = None
    size: int | None = None


def padded(samples: list[Sample | None], how: Collation, shape: Shape) -> Payload:
    """The samples as a batch. None is an empty slot: it has weight 0 and repeats another sample's values."""
    present = [sample for sample in samples if sample is not None]
    if not present:
        raise DataError(
            "no sample of a micro-batch could be read, and none could stand in", fix="look at the quarantine files"
        )
    filled = [present[0] if sample is None else sample for sample in samples]
    payload: Payload = {}
    names = field_names(present, how.fields)
    aligned = aligned_fields(present, names, how.sequence)
    for name in names:
        wanted = shape.length if name in aligned else None
        payload |= _column(name, [sample[name] for sample in filled], how.pad_values.get(name, 0), wanted)
    weights = np.array([sample is not None for sample in samples], np.float32)
    payload["weights"] = weights
    return payload if shape.size is None else _with_empty_rows(payload, len(samples), shape.size)


def packed(samples: list[Sample | None], how: Collation, length: int) -> Payload:
    """The samples one after another in a bin of `length`, with what attention needs to keep them apart.

    `segment_ids` count samples from 1 (0 is padding), `positions` restart with each, `cu_seqlens` are the bounds.
    """
    present = [sample for sample in samples if sample is not None]
    names = field_names(present, how.fields) if present else ()
    aligned = aligned_fields(present, names, how.sequence)
    sizes = [len(sample[how.sequence]) for sample in present]
    total = sum(sizes)
    length = max(length, total)  # an overlong sample that goes alone has a bin of its own size
    bounds = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))).astype(np.int32)
    segments = np.zeros(length, np.int32)
    positions = np.zeros(length, np.int32)
    for i, (first, end) in enumerate(pairwise(bounds)):
        segments[first:end] = i + 1
        positions[first:end] = np.arange(end - first)
    payload: Payload = {"segment_ids": segments, "positions": positions, "cu_seqlens": bounds}
    for name in names:
        values = [sample[name] for sample in present]
        if name in aligned:
            arrays = [np.asarray(value) for value in values]
            out = _blank((length, *arrays[0].shape[1:]), arrays, how.pad_values.get(name, 0))
            out[:total] = np.concatenate(arrays)
            payload[name] = out
        elif all(isinstance(value, _NUMBERS) for value in values):
            payload[name] = np.array(values)
        else:
            payload[name] = values
    payload["weights"] = np.ones(len(present), np.float32)
    return payload


def field_names(samples: list[Sample], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The fields of the batch. Law: every sample has every one of them."""
    names = wanted if wanted is not None else tuple(samples[0])
    for i, sample in enumerate(samples):
        missing = [name for name in names if name not in sample]
        extra = [] if wanted is not None else [name for name in sample if name not in samples[0]]
        if missing or extra:
            first, other = (missing[0], i) if missing else (extra[0], 0)
            raise DataError(
                f'field "{first}" is in some samples of the micro-batch and not in others',
                found=f"sample {other} of {len(samples)} has only: {', '.join(samples[other]) or 'nothing'}",
                expected="the same fields in every sample",
                fix="name the fields to deliver with `fields: [...]`, add them in `map`, or give a `collate` function",
            )
    return names


def aligned_fields(samples: list[Sample], names: tuple[str, ...], sequence: str) -> frozenset[str]:
    """The fields that run along the sequence: in every sample as long as its sequence field."""
    if sequence not in names:
        return frozenset()
    return frozenset(
        name
        for name in names
        if all(_is_array(sample[name]) and len(sample[name]) == len(sample[sequence]) for sample in samples)
    )


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, list) and all(isinstance(item, _NUMBERS) for item in value)


def _column(name: str, values: list[Any], pad_value: float, length: int | None) -> Payload:
    if all(isinstance(value, _NUMBERS) for value in values):
        return {name: np.array(values)}
    if not all(_is_array(value) for value in values):
        if any(isinstance(value, np.ndarray) for value in values):
            kinds = sorted({type(value).__name__ for value in values})
            raise DataError(
                f'field "{name}" is not the same kind of thing in every sample',
                found=", ".join(kinds),
                fix="make them alike in `map`, or give a `collate` function",
            )
        return {name: values}
    return _padded_column(name, [np.asarray(value) for value in values], pad_value, length)


def _padded_column(name: str, arrays: list[Array], pad_value: float, length: int | None) -> Payload:
    inner = {array.shape[1:] for array in arrays if array.size}
    if len(inner) > 1:
        raise DataError(
            f'field "{name}" is ragged in more than its first axis',
            found=f"shapes {', '.join(str(array.shape) for array in arrays[:4])}",
            expected="arrays that differ in their first axis only",
            fix="pad the other axes in `map`, or give a `collate` function",
        )
    sizes = np.array([len(array) for array in arrays], np.int64)
    longest = int(sizes.max())
    if length is not None and longest > length:
        raise DataError(
            f'field "{name}" is longer than `pad_to` allows',
            found=f"{longest:,}",
            expected=f"at most {length:,}",
            fix="raise `pad_to`, or bound the lengths (`overlong: truncate`)",
        )
    width = longest if length is None else length
    out = _blank((len(arrays), width, *(inner.pop() if inner else ())), arrays, pad_value)
    for i, array in enumerate(arrays):
        if len(array):
            out[i, : len(array)] = array
    mask = np.arange(width) < sizes[:, None]
    return {name: out, f"{name}_lengths": sizes, f"{name}_mask": mask}


def _blank(shape: tuple[int, ...], arrays: list[Array], pad_value: float) -> Array:
    dtype = np.result_type(*(array.dtype for array in arrays if array.size)) if any(a.size for a in arrays) else None
    return np.full(shape, pad_value, dtype) if pad_value else np.zeros(shape, dtype)


def _with_empty_rows(payload: Payload, size: int, wanted: int) -> Payload:
    """Pad the sample axis, so that compiled programs see few shapes; the rows added have weight 0."""
    if size >= wanted:
        return payload
    more = wanted - size
    return {
        name: np.concatenate((value, np.zeros((more, *value.shape[1:]), value.dtype)))
        if isinstance(value, np.ndarray)
        else [*value, *[None] * more]
        for name, value in payload.items()
    }
