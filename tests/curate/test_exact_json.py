from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.curate.exact_json import Writer, dumps, loads
from playhead.curate.scan_values import MOST_DEPTH, MOST_KEYS, copy_number, copy_value, skip_space

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | finite | st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=12
)
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(st.lists(values, max_size=6))
@example([1e-05, 0.0001, -0.00001, 10.00001, 100.00001, 1e16, 1e15, 5e-324, True, False, None, {"e": 1}])
@example([[], {}, "", "\\", '"', "\x00\x1f\x7f\u2028", {"a": [{}]}])
def test_items_are_written_as_python_writes_them(given_values: list[Any]) -> None:
    text, items = written(Writer(), given_values)
    assert text.decode() == json.dumps(given_values, ensure_ascii=False)
    for item, value in zip(items, given_values, strict=True):
        assert item == dumps(value) == json.dumps(value, ensure_ascii=False).encode()


def written(writer: Writer, given_values: list[Any]) -> tuple[bytes, list[bytes]]:
    room = np.zeros(writer.prepare(given_values) + 3, dtype=np.uint8)
    starts, ends = np.zeros((2, len(given_values)), dtype=np.int64)
    end = writer.put(room, 3, starts, ends)
    return room[3:end].tobytes(), [room[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]


def test_a_writer_writes_list_after_list() -> None:
    writer = Writer()
    for size in (10, 300_000, 5):
        given_values = ["x" * size, list(range(size))]
        assert written(writer, given_values)[0] == dumps(given_values)


# Texts that kernels copy, and texts that they leave to others: in other writings, or broken.
texts = st.one_of(
    values.map(lambda value: json.dumps(value, ensure_ascii=False)),
    values.map(lambda value: json.dumps(value, indent=1)),
    values.map(lambda value: json.dumps(value, separators=(",", ":"))),
    st.text(st.sampled_from('{}[]",:\\u0e-+.19 \ttrufalsn'), max_size=12),
    numbers,
)


@given(texts, st.booleans())
@example('{"a": 1, "a": 2}', False)
@example("[1.50, 00, -0, 1., .5, -]", False)
@example("[0.0001, 0.00001, 123456789012345.0, 1234567890123456]", False)
@example('"\\u00e9 \\/ \\n"', False)
@example("[" * 40 + "]" * 40, False)
@example("nul", False)
@example("truefalse", False)
@example("[1 2]", False)
@example('{"a" 1}', False)
@example("[-0.0, 0.0, -0.5, 1e5, NaN, -Infinity, 1e-05, 12345678901234567890]", True)
def test_what_is_copied_is_what_python_writes_of_it(text: str, trusted: bool) -> None:
    """A text is trusted only if Python has written it."""
    try:
        expected = json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        expected = None
    if trusted and expected is None:
        return
    source = np.frombuffer((expected if trusted else text).encode("utf-8", "surrogatepass"), dtype=np.uint8)
    out = np.zeros(2 * source.size + 64, dtype=np.uint8)
    stack, keys = np.zeros((MOST_DEPTH + 1, 2), np.int64), np.zeros((MOST_DEPTH + 3, MOST_KEYS, 2), np.int64)
    end, size = copy_value(source, 0, out, 0, trusted, stack, keys)
    if end >= 0 and skip_space(source, end) == source.size:
        assert out[:size].tobytes().decode() == expected
    elif trusted:
        assert "\\u" in expected or expected.count("[") + expected.count("{") >= MOST_DEPTH


@given(numbers)
def test_a_number_that_is_copied_has_its_value(text: str) -> None:
    source, out = np.frombuffer(text.encode(), dtype=np.uint8), np.zeros(99, dtype=np.uint8)
    end, size, value, kind = copy_number(source, 0, out, 0, False)
    if end >= 0:
        assert out[:size].tobytes().decode() == text == json.dumps(json.loads(text))
        assert repr(json.loads(text)) == repr(int(value) if kind == 0 else value)


@given(numbers)
@example("-0")
@example("-0.0")
@example("123456789012345678901234567890")
@example("1e999")
def test_numbers_are_read_as_python_reads_them(text: str) -> None:
    assert repr(loads(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 3}', "NaN", "[Infinity]", '"\\ud83d\\ude00"', '"\\ud800"'])
def test_what_python_reads_is_read_the_same(text: str) -> None:
    assert repr(loads(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"{", b'"\x01"', b"[1,]", b"01", b"1.", b"\xff", b"", b"{} {}", b"\xef\xbb\xbf{}"])
def test_what_python_does_not_read_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of two kinds, with Python's own words
        loads(text)


def test_half_a_surrogate_pair_cannot_be_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        dumps("\ud800")
