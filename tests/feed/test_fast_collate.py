"""The quick ways of collation against the slow ones: the same arrays bit for bit, the same errors."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.errors import SampleError
from playhead.feed.collate import Shape, padded
from playhead.feed.numbers import Dtype, arrays_of, flat_of
from playhead.feed.padding import Collation

EDGES = [0, 1, 2**8, 2**31, 2**53, 2**63, 2**64]
WHOLE = st.integers(-300, 300) | st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 2, edge + 2))
OF_NUMPY = st.sampled_from([np.int64(3), np.int8(-3), np.uint64(2**63), np.float32(0.5), np.bool_(True)])
ODD = st.sampled_from([None, "text", [1, 2], [[1], [2, 3]], b"bytes", np.array(3), {}])
ITEMS = WHOLE | st.booleans() | st.floats(allow_nan=True) | OF_NUMPY | ODD
ALIKE = st.sampled_from([WHOLE, st.integers(-300, 300), st.floats(), st.booleans(), OF_NUMPY, WHOLE | st.booleans()])
LISTS = (ALIKE | st.just(ITEMS)).flatmap(lambda items: st.lists(st.lists(items, max_size=5), min_size=1, max_size=4))
SCALARS = (ALIKE | st.just(ITEMS)).flatmap(lambda items: st.lists(items, min_size=4, max_size=4))
DTYPES = st.none() | st.sampled_from(["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float64"])
ALL_EMPTY: list[list[Any]] = [[], []]


def outcome(samples: list[Any], how: Collation, length: int | None) -> Any:
    """A batch with all there is to know of its arrays, or the error."""
    try:
        batch = padded(samples, how, Shape(length), dict)
    except SampleError as error:
        return str(error), getattr(error, "slot", None)
    return {name: plain(value) for name, value in batch.items()}


def plain(value: Any) -> Any:
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


class OtherList(list[Any]):
    """A list that is collated one by one: only plain ones are not."""


def other(value: Any) -> Any:
    return OtherList(value) if isinstance(value, list) else value


@given(LISTS, SCALARS, DTYPES, st.integers(-3, 3), st.none() | st.integers(0, 6), st.booleans())
@example([[1, 2], [3]], [1, 2, 3, 4], None, 0, None, True)
@example([[1, 2], []], [1.5, 2.0, 3.0, 4.0], "float64", -1, 4, False)
@example([[1], [True, 2**63]], [None, 2, 3, 4], None, 0, None, True)
@example([[2**53 + 1], [0.5]], [2**53 + 1, 0.5, 1, 2], None, 0, None, False)
@example([[0.1], [float("nan")]], [True, 0, 1, 2], None, 0, None, True)
@example(ALL_EMPTY, ["a", "b", "c", "d"], None, 0, None, True)
def test_plain_lists_and_dictionaries_are_collated_as_others_are(
    lists: list[list[Any]], scalars: list[Any], dtype: str | None, pad_value: int, length: int | None, named: bool
) -> None:
    dtypes = {} if dtype is None else {"x": np.dtype(dtype)}
    how = Collation(("x", "n") if named else None, "x", {"x": pad_value}, dtypes)
    samples = [{"x": x, "n": n} for x, n in zip(lists, scalars, strict=False)]
    slow = [OrderedDict((name, other(value)) for name, value in sample.items()) for sample in samples]
    assert outcome(samples, how, length) == outcome(slow, how, length)


@pytest.mark.parametrize("sizes", [[20_000] * 3, [20_000, 0, 700], [3] * 400, [700, 3] * 200])
@pytest.mark.parametrize("masks", ["always", "never"])
def test_large_lists_are_collated_as_others_are(sizes: list[int], masks: Any) -> None:
    samples = [{"x": [row + k for k in range(size)]} for row, size in enumerate(sizes)]
    slow = [{"x": np.array(sample["x"], np.int64)} for sample in samples]
    how = Collation(None, "x", {"x": -7}, masks=masks)
    for length in (None, 20_001):
        assert outcome(samples, how, length) == outcome(slow, how, length)


@given(LISTS, DTYPES)
def test_numbers_end_to_end_are_the_arrays_end_to_end(lists: list[list[Any]], dtype: str | None) -> None:
    declared: Dtype | None = None if dtype is None else np.dtype(dtype)
    found = flat_of(lists, declared)
    if found is not None:
        arrays, wanted = arrays_of("x", lists, declared)
        joined = np.concatenate([array.astype(wanted) for array in arrays])
        assert plain(found) == plain(joined)


@pytest.mark.parametrize("lists", [[[1, 2], [], [3]], [[0.5], [float("nan"), 1.0]], [[2**63 - 1], [-(2**63)]]])
def test_plain_numbers_take_the_quick_way(lists: list[list[Any]]) -> None:
    assert flat_of(lists, None) is not None


@pytest.mark.parametrize(
    "lists", [[[2**63]], [[1, True]], [[1, 0.5]], [[0.5, 1]], [[np.int64(1)]], [[[1]]], [(1,)], [[]], [[1], None]]
)
def test_what_is_not_plain_takes_the_slow_way(lists: list[Any]) -> None:
    assert flat_of(lists, None) is None


FIELDS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.just(1)), min_size=1, max_size=4)


@given(FIELDS, st.none() | st.lists(st.sampled_from("abcde"), max_size=4).map(tuple))
def test_fields_that_differ_are_found_in_dictionaries_as_in_other_mappings(
    samples: list[dict[str, int]], wanted: tuple[str, ...] | None
) -> None:
    how = Collation(wanted, None)
    assert outcome([*samples], how, None) == outcome([OrderedDict(sample) for sample in samples], how, None)
