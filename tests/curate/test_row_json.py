from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.curate.rows import RowError, read_row, write_row

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=12
)
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(numbers)
@example("-0")
@example("-0.0")
@example("123456789012345678901234567890")
@example("1e999")
def test_numbers_are_read_as_python_reads_them(text: str) -> None:
    assert repr(read_row(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 3}', "NaN", "[Infinity]", '"\\ud83d\\ude00"', '"\\ud800"'])
def test_what_python_reads_is_read_the_same(text: str) -> None:
    assert repr(read_row(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"{", b'"\x01"', b"[1,]", b"01", b"1.", b"\xff", b"", b"{} {}", b"\xef\xbb\xbf{}"])
def test_what_python_does_not_read_is_refused(text: bytes) -> None:
    with pytest.raises(RowError, match=r"broken JSON|not UTF-8"):
        read_row(text)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
@example({"a": [1e-05, 1e16, 5e-324, float("nan"), float("-inf"), 2**70, -0.0, "\x00\x7f\u2028\\"]})
def test_a_row_is_one_line_that_python_reads_as_the_same_row(row: dict[str, Any]) -> None:
    line = write_row(row)
    assert repr(json.loads(line)) == repr(row)
    assert line.index(b"\n") == len(line) - 1


def test_half_a_surrogate_pair_cannot_be_written() -> None:
    with pytest.raises(RowError, match="half a surrogate pair"):
        write_row({"a": "\ud800"})
