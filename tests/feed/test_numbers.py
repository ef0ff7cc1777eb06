"""Numbers as arrays: each is delivered as it is, or the field, the sample and the remedy are named."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.errors import SampleError
from playhead.feed.collate import Shape, packed, padded
from playhead.feed.numbers import SlotError
from playhead.feed.padding import Collation

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]
EDGES = [0, 1, 127, 255, 2**11, 2**24, 2**31, 2**32, 2**53, 2**63, 2**64, 10**30]
WHOLE = st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 2, edge + 2)) | st.integers(-(2**64), 2**64)
SIGNED = WHOLE | WHOLE.map(lambda number: -number)
NUMBERS = st.one_of(st.booleans(), SIGNED, st.floats(), st.sampled_from([0.5, 1e5, 3.0, 1e300, float(2**63)]))
COLUMNS = st.lists(NUMBERS, min_size=1, max_size=6)
LISTS = st.lists(st.lists(NUMBERS, max_size=5), min_size=1, max_size=4)


def pad(values: list[Any], **how: Any) -> Any:
    return padded([{"x": value} for value in values], Collation(**how), Shape(), dict)["x"]


def pack(values: list[Any], **how: Any) -> Any:
    """The values along the sequence, and one number for each sample."""
    samples = [{"x": value, "first": value[0] if len(value) else 0} for value in values]
    return packed(samples, Collation(sequence="x", **how), 0, dict)


def is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def same(found: Any, number: Any) -> bool:
    return bool(found == number) or bool(np.isnan(found) and np.isnan(number))


def fits(number: Any, dtype: str) -> bool:
    """The slow twin: whether a dtype can hold a number."""
    kind = np.dtype(dtype)
    if isinstance(number, bool):
        return True
    if kind.kind == "f":
        if is_whole(number):
            return abs(number) <= 2 ** {"float16": 11, "float32": 24, "float64": 53}[dtype]
        with np.errstate(over="ignore"):
            return not isfinite(number) or bool(np.isfinite(kind.type(number)))
    if not isfinite(number) or number != int(number):
        return False
    low, high = (0, 1) if dtype == "bool" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    return low <= int(number) <= high


def rounded(number: Any, dtype: str) -> Any:
    """A fraction as the dtype has it; other numbers are themselves."""
    return np.dtype(dtype).type(number) if isinstance(number, float) and dtype.startswith("float") else number


@given(COLUMNS)
@example([1, 2**63])
@example([2**64 - 1, 1])
@example([-1, 2**63])
@example([2**53 + 1, 0.5])
@example([True, 2**63])
def test_undeclared_numbers_are_delivered_as_they_are_or_refused(values: list[Any]) -> None:
    beyond = [slot for slot, number in enumerate(values) if is_whole(number) and not -(2**63) <= number < 2**63]
    whole = not any(isinstance(number, float) for number in values)
    rough = not whole and any(is_whole(number) and abs(number) > 2**53 for number in values)
    if beyond or rough:
        with pytest.raises(SlotError) as caught:
            pad(values)
        assert not beyond or caught.value.slot == beyond[0]
        return
    found = pad(values)
    assert all(same(new, old) for new, old in zip(found.tolist(), values, strict=True))
    expected = np.bool_ if all(isinstance(number, bool) for number in values) else np.int64 if whole else np.float64
    assert found.dtype == expected


@given(LISTS)
@example([[1], [2**63]])
@example([[2**63 - 1], [-1], []])
@example([[2**53 + 1], [0.5]])
@example([[2**60, 0.5]])
def test_undeclared_lists_of_numbers_are_delivered_as_they_are_or_refused(values: list[list[Any]]) -> None:
    for deliver in (pad, lambda lists: pack(lists)["x"]):
        everything = [number for row in values for number in row]
        beyond = [is_whole(number) and not -(2**63) <= number < 2**63 for number in everything]
        whole = not any(isinstance(number, float) for number in everything)
        rough = not whole and any(is_whole(number) and abs(number) > 2**53 for number in everything)
        if any(beyond) or rough:
            with pytest.raises(SlotError) as caught:
                deliver(values)
            assert any(is_whole(number) and abs(number) > 2**53 for number in values[caught.value.slot])
            continue
        found = deliver(values)
        assert found.dtype != np.float64 or not whole
        rows = found.tolist() if deliver is pad else [found.tolist()]
        wanted = values if deliver is pad else [everything]
        for row, numbers in zip(rows, wanted, strict=True):
            assert all(same(new, old) for new, old in zip(row, numbers, strict=False))


@given(COLUMNS, st.sampled_from(DTYPES))
@example([2**64 - 1, 0, 2**63], "uint64")
@example([-1, 2**63], "uint64")
@example([0.1, 1e300], "float32")
@example([float(2**63)], "int64")
def test_a_declared_dtype_holds_in_every_batch_and_what_does_not_fit_is_refused(values: list[Any], dtype: str) -> None:
    misfits = [slot for slot, number in enumerate(values) if not fits(number, dtype)]
    how = {"dtypes": {"x": np.dtype(dtype), "first": np.dtype(dtype)}}
    lists = [[number] for number in values]
    columns = [lambda: pad(values, **how), lambda: pack(lists, **how)["x"], lambda: pack(lists, **how)["first"]]
    for deliver in (*columns, lambda: pad(lists, **how).ravel()):
        if misfits:
            with pytest.raises(SlotError) as caught:
                deliver()
            assert caught.value.slot == misfits[0]
            continue
        with np.errstate(over="ignore"):
            wanted = [rounded(number, dtype) for number in values]
        found = deliver()
        assert found.dtype == dtype
        assert all(same(new, old) for new, old in zip(found, wanted, strict=True))


def test_one_beyond_int64_is_an_error_with_the_remedy() -> None:
    for values in ([1, 2**64 - 1], [[1], [1, 2**64 - 1]]):
        with pytest.raises(SlotError) as caught:
            pad(values)
        assert caught.value.problem == 'field "x" holds a whole number beyond int64'
        assert caught.value.found == "18446744073709551615"
        assert "`dtypes: {x: uint64}`" in str(caught.value.fix)
        assert caught.value.slot == 1
        assert pad(values, dtypes={"x": np.dtype("uint64")}).max() == 2**64 - 1
    for beyond in (-(2**63) - 1, 2**64):  # no dtype holds these
        with pytest.raises(SlotError) as caught:
            pad([beyond])
        assert "uint64" not in str(caught.value.fix)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64"])
def test_arrays_and_numbers_of_numpy_keep_their_dtype(dtype: str) -> None:
    array = np.ones(2, dtype)
    assert pad([array, array[:1]]).dtype == dtype
    assert pad([array[0], array[1]]).dtype == dtype
    assert pack([array, array[:1]])["x"].dtype == dtype


def test_whole_arrays_that_only_a_float_type_has_room_for_are_refused() -> None:
    with pytest.raises(SampleError, match='field "x" mixes integer dtypes') as caught:
        pad([np.ones(1, np.uint64), [1]])
    assert "`dtypes: {x: uint64}` or `int64`" in str(caught.value.fix)
    for dtype in ("int64", "uint64", "uint8"):
        assert pad([np.ones(1, np.uint64), [1]], dtypes={"x": np.dtype(dtype)}).dtype == dtype
    assert pad([np.uint64(1), 2]).dtype == np.int64
    assert pad([np.ones(1, np.uint32), np.ones(1, np.int32)]).dtype == np.int64


@pytest.mark.parametrize("values", [[1, None], [1, "2"], [[1], None], [1, [2]], [[[1]], [[2]]]])
def test_a_declared_field_holds_numbers_in_every_sample(values: list[Any]) -> None:
    assert pad(values) == values  # undeclared: a list
    with pytest.raises(SlotError, match='field "x" does not fit its dtype, int64'):
        pad(values, dtypes={"x": np.dtype("int64")})
    with pytest.raises(SlotError) as caught:
        pad([1, None], dtypes={"x": np.dtype("int64")})
    assert (caught.value.slot, caught.value.found) == (1, "null")


def test_an_empty_batch_of_lists_has_the_declared_dtype() -> None:
    for dtype in DTYPES:
        assert pad([[], []], dtypes={"x": np.dtype(dtype)}).dtype == dtype


@pytest.mark.parametrize(
    ("value", "dtype"), [(2, "bool"), (1e300, "float32"), (float(2**53), "int64"), (70_000, "float16"), (0.5, "uint64")]
)
def test_a_padding_value_that_the_dtype_cannot_hold_is_refused(value: float, dtype: str) -> None:
    with pytest.raises(SampleError, match='pad_values: field "x" cannot be padded with'):
        pad([[1], []], dtypes={"x": np.dtype(dtype)}, pad_values={"x": value})
    assert pad([[1], []], dtypes={"x": np.dtype(dtype)}, pad_values={"x": 1}).tolist() == [[1], [1]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64"])
@pytest.mark.parametrize("values", [[10**400], [1.5, 10**400], [[10**400, 1]]])
def test_a_whole_number_beyond_every_dtype_is_refused_and_not_a_crash(values: list[Any], dtype: str) -> None:
    with pytest.raises(SampleError):
        pad(values, dtypes={"x": np.dtype(dtype)})


WIDER = [(own, wide) for own in DTYPES[:9] for wide in DTYPES[:9] if own != wide]


@pytest.mark.parametrize(("own", "wide"), WIDER)
def test_arrays_of_whole_numbers_are_widened_as_they_are_or_refused(own: str, wide: str) -> None:
    """Every edge of the dtype that arrays have, in the one that is declared."""
    edges = [0, 1] if own == "bool" else [np.iinfo(own).min, 0, 1, np.iinfo(own).max]
    values = [np.array(edges, own), np.array(edges[:1], own)]
    low, high = (0, 1) if wide == "bool" else (int(np.iinfo(wide).min), int(np.iinfo(wide).max))
    how = {"dtypes": {"x": np.dtype(wide)}}
    for make in (pad, lambda values, **how: pack(values, **how)["x"]):
        if all(low <= int(edge) <= high for edge in edges):
            found = make(values, **how)
            assert found.dtype == np.dtype(wide)
            assert found.ravel()[: len(edges)].tolist() == [*map(int, edges)]
        else:
            with pytest.raises(SlotError):
                make(values, **how)
