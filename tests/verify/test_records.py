"""What a rank writes down: whole after a kill; and contents: equal where every bit is, however they are delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from playhead.verify.payload import difference_in_words, digests_of, first_difference, parts_of, read_parts, write_parts
from playhead.verify.record import BatchLine, EndLine, RecordWriter, SaveLine, StepLine, read_record

LINES = [
    BatchLine(0, 1, ["a", "b"], [0, 0], [7, 9], 1, False, 55, ["x", "y"], {"tokens": "00"}),
    SaveLine("inside", 1, "ab"),
    StepLine(0, 0.25, 1 << 30, "cd", "ef"),
    EndLine(True, 2.5, None),
]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "rank.jsonl") as record:
        for line in LINES:
            record.write(line)
    found = read_record(tmp_path / "rank.jsonl", 3)
    assert (found.rank, found.lines) == (3, LINES)
    assert found.batches[0].picks == [("a", 0, 7), ("b", 0, 9)]
    assert found.batches[0].sample(1) == "b, row 9 of epoch 0, id y"
    assert found.saves["inside"].num_batches == 1


def test_a_last_line_torn_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    with RecordWriter(path) as record:
        for line in LINES:
            record.write(line)
    whole = path.read_bytes()
    for size in range(len(whole) - 1, len(whole) - 60, -7):
        path.write_bytes(whole[:size])
        assert read_record(path, 0).lines == LINES[:-1][: whole[:size].count(b"\n")]
    assert read_record(tmp_path / "none.jsonl", 0).lines == []


NUMBERS = arrays.arrays(
    st.sampled_from(["float32", "float64", "int16", "uint8", "bool", "complex64"]),
    arrays.array_shapes(max_dims=2, max_side=3),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3) | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3)


@given(PAYLOADS, PAYLOADS)
def test_digests_are_equal_where_no_part_differs(left: dict[str, Any], right: dict[str, Any]) -> None:
    same = first_difference(parts_of(left), parts_of(right)) is None
    assert (digests_of(left) == digests_of(right)) == same
    assert first_difference(parts_of(left), parts_of(left)) is None


def test_a_tensor_has_the_digest_of_its_array() -> None:
    for dtype in ("float32", "int64", "bool", "uint8", "complex64", "float16"):
        array = np.arange(6).reshape(2, 3).astype(dtype)
        assert digests_of({"x": torch.from_numpy(array)}) == digests_of({"x": array})
        assert digests_of({"x": [torch.from_numpy(array).T]}) == digests_of({"x": [array.T]})
    assert digests_of({"x": np.ones(2, ">i4")}) == digests_of({"x": np.ones(2, "<i4")})
    assert digests_of({"x": torch.ones(3, dtype=torch.bfloat16)}) != digests_of(
        {"x": torch.zeros(3, dtype=torch.bfloat16)}
    )


@pytest.mark.parametrize(
    ("left", "right", "where", "values"),
    [
        (np.zeros((2, 3)), np.array([[0, 0, 0], [0, 5, 0]], float), ("x", "[1, 1]"), ("0.0", "5.0")),
        (np.zeros(2), np.array([0.0, -0.0]), ("x", "[1]"), ("0.0", "-0.0")),
        (np.zeros(2, "i4"), np.zeros(2, "i8"), ("x", ""), ("int32 of shape (2,)", "int64 of shape (2,)")),
        (np.zeros(2), np.zeros(3), ("x", ""), ("float64 of shape (2,)", "float64 of shape (3,)")),
        (["a", "b"], ["a", "c"], ("x[1]", ""), ("'b'", "'c'")),
        ([{"y": 1}], [{"y": 1, "z": 2}], ("x[0]", ""), ("1 entries", "2 entries")),
        (1, True, ("x", ""), ("1", "True")),
    ],
)
def test_the_first_element_that_differs_is_named(left: Any, right: Any, where: Any, values: Any) -> None:
    found = first_difference(parts_of({"x": left}), parts_of({"x": right}))
    assert ((found.path, found.element), (found.expected, found.delivered)) == (where, values)


def test_what_a_second_payload_has_differently_is_said_in_words() -> None:
    assert difference_in_words({"x": float("nan")}, {"x": float("nan")}) is None
    assert difference_in_words({"x": [1, {"y": "a"}]}, {"x": [1, {"y": "b"}]}) == "x[1].y: 'a', then 'b'"
    assert difference_in_words({"x": np.zeros((2, 1))}, {"x": np.ones((2, 1))}) == "x[0, 0]: 0.0, then 1.0"


def test_fields_that_only_one_side_has_are_differences() -> None:
    both, one = parts_of({"x": 1, "y": 2}), parts_of({"x": 1})
    assert first_difference(both, one).delivered == "no such field"
    assert first_difference(one, both).expected == "no such field"


class Held:
    def __init__(self, *values: object) -> None:
        self.values = values


def test_values_of_any_class_are_compared_by_their_contents() -> None:
    assert digests_of({"x": {1, 2}}) == digests_of({"x": {1, 2}})
    assert digests_of({"x": {8, 0}}) == digests_of({"x": {0, 8}})  # whatever their order inside
    text = "one text"
    assert digests_of({"x": Held(text, text)}) == digests_of({"x": Held(text, " ".join(["one", "text"]))})
    assert digests_of({"x": Held(1)}) != digests_of({"x": Held(2)})
    assert digests_of({"x": slice(1)}) != digests_of({"x": slice(2)})
    assert digests_of({"x": test_fields_that_only_one_side_has_are_differences}) == digests_of(
        {"x": test_fields_that_only_one_side_has_are_differences}
    )
    assert digests_of({"x": lambda: 1}) == digests_of({"x": lambda: 2})  # it cannot be pickled: by its name


def test_parts_are_read_as_they_were_written(tmp_path: Path) -> None:
    payload = {"a": np.arange(4.0), "b": ["x", {"c": torch.ones(2, 2)}], "d": "ü"}
    write_parts(tmp_path / "parts", parts_of(payload))
    assert first_difference(parts_of(payload), read_parts(tmp_path / "parts")) is None
    assert read_parts(tmp_path / "nothing") is None
