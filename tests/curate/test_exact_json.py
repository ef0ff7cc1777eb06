from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.curate.exact_json import Writer, dumps, loads

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | finite | st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=12)
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(st.lists(values, max_size=6))
@example([1e-05, 0.0001, -0.00001, 10.00001, 100.00001, 1e16, 1e15, 5e-324, True, False, None, {"e": 1}])
@example([[], {}, "", "\\", '"', "\x00\x1f\x7f\u2028", {"a": [{}]}])
def test_items_are_written_as_python_writes_them(given_values: list[Any]) -> None:
    items = Writer().items(given_values)
    assert items.text.tobytes().decode() == json.dumps(given_values, ensure_ascii=False)
    for i, value in enumerate(given_values):
        assert items[i] == dumps(value) == json.dumps(value, ensure_ascii=False).encode()


def test_room_grows_with_what_is_written() -> None:
    writer = Writer()
    for size in (10, 5_000, 300_000):
        given_values = ["x" * size, list(range(size))]
        assert writer.items(given_values).text.tobytes() == dumps(given_values)
    many = list(range(5_000))
    assert writer.items(many)[4_999] == b"4999"


@given(numbers)
@example("-0")
@example("-0.0")
@example("123456789012345678901234567890")
@example("1e999")
def test_numbers_are_read_as_python_reads_them(text: str) -> None:
    found, _ = loads(text.encode())
    assert repr(found) == repr(json.loads(text))


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 3}', "NaN", "[Infinity]", '"\\ud83d\\ude00"', '"\\ud800"'])
def test_what_python_reads_is_read_the_same(text: str) -> None:
    assert repr(loads(text.encode())[0]) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"{", b'"\x01"', b"[1,]", b"01", b"1.", b"\xff", b"", b"{} {}", b"\xef\xbb\xbf{}"])
def test_what_python_does_not_read_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        loads(text)


def test_half_a_surrogate_pair_cannot_be_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        dumps("\ud800")
