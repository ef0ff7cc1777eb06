"""Samples -> one micro-batch of numpy arrays.

Every field of the samples becomes a field of the batch: numbers an array, arrays (and lists of numbers) one array
padded along its first axis with `<field>_lengths` and (unless the recipe's `masks` leaves it out) `<field>_mask` beside
it, media of conversations the arrays of media_columns.py, anything else a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import Struct

from playhead.errors import SampleError
from playhead.feed.media_columns import are_media, media_columns
from playhead.feed.numbers import arrays_of
from playhead.feed.padding import (
    Collation,
    Empty,
    Making,
    Payload,
    entries,
    inner_shape,
    is_array,
    padded_values,
)
from playhead.formats.rows import Sample
from playhead.read.stored import StoredArray
from playhead.recipe.words import nearest
from playhead.types import Array

Filler = Callable[[], Sample]

_INT32 = np.dtype(np.int32)


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
    making = Making(how, max(len(samples), shape.size or 0), empty)
    payload: Payload = {}
    for name, values in columns:
        if are_media(values):
            _add(payload, media_columns(name, values, making))
            continue
        wanted = shape.length if name in aligned else None
        _add(payload, padded_values(name, values, making, wanted))
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
    making = Making(how, len(samples), empty)
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
        if are_media(values):
            there = [i for i, sample in enumerate(samples) if sample is not None]
            _add(payload, media_columns(name, values, making, there, bounds))
            continue
        if name not in aligned:
            _add(payload, {name: entries(name, values, making)})
            continue
        arrays, dtype = arrays_of(name, values, how.dtypes.get(name))
        out = making.array((length, *inner_shape(name, arrays)), dtype)
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


def _check_sequences(samples: list[Sample], sequence: str) -> None:
    """Refuse samples that cannot be concatenated in a pack."""
    for i, sample in enumerate(samples):
        if not is_array(sample[sequence]):
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
    if sequence is None or any(sequence not in sample or not is_array(sample[sequence]) for sample in samples):
        return frozenset()
    sizes = [len(sample[sequence]) for sample in samples]
    return frozenset(
        name
        for name in names
        if name == sequence
        or all(
            is_array(sample[name]) and len(sample[name]) == size for sample, size in zip(samples, sizes, strict=True)
        )
    )
