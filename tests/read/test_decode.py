"""Members decoded by their extension; a broken one is named."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import npy
from playhead.errors import SampleError
from playhead.formats.rows import Sample
from playhead.read import decode
from playhead.read.stored import read_arrays

ARRAY = npy(np.arange(12, dtype=np.float32).reshape(3, 4))


def decoded(sample: Sample) -> Sample:
    """The sample as a map is given it."""
    return read_arrays([decode.decoded(sample)])[0]


def test_members_are_decoded_by_the_last_part_of_their_extension() -> None:
    sample = {
        "__key__": "a",
        "json": b'{"n": 1}',
        "seg.json": b"[1, 2]",
        "txt": "é".encode(),
        "npy": ARRAY,
        "wav": b"RIFF",
        "n": 3,
        "made.npy": [1],
    }
    found = decoded(sample)
    assert found["json"] == {"n": 1}
    assert found["seg.json"] == [1, 2]
    assert found["txt"] == "é"
    assert found["npy"].tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert found["npy"].flags.writeable
    assert (found["wav"], found["n"], found["made.npy"], found["__key__"]) == (b"RIFF", 3, [1], "a")
    assert sample["json"] == b'{"n": 1}'


def test_a_sample_without_bytes_is_given_back_itself() -> None:
    sample = {"a": 1, "b": "text"}
    assert decoded(sample) is sample


def test_json_that_can_be_indexed_can_be_read() -> None:
    found = decoded({"json": b'{"x": NaN, "y": -Infinity, "text": "\xff"}'})["json"]
    assert math.isnan(found["x"])
    assert found["y"] == -math.inf
    assert found["text"] == "\ufffd"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("json", b'{"n": '),
        ("json", b""),
        ("txt", b"\xff\xfe\x00"),
        ("npy", b""),
        ("npy", b"\x93NUMPY"),
        ("npy", ARRAY[:-1]),
        ("npy", ARRAY.replace(b"(3, 4)", b"(9, 9)")),
        ("npy", ARRAY.replace(b"'<f4'", b"'|O' ")),
        ("npy", b"PK\x03\x04 no archive"),
        ("a.npy", b"text"),
    ],
)
def test_a_broken_member_is_named_with_the_reason(name: str, data: bytes) -> None:
    with pytest.raises(SampleError) as caught:
        decoded({"__key__": "a", name: data})
    assert caught.value.problem == f'member "{name}" cannot be decoded'
    assert ": " in str(caught.value.found)
    assert "decode: false" in str(caught.value.fix)


@given(at=st.integers(0, 127), byte=st.integers(0, 255))
def test_any_byte_of_an_array_s_head_may_break_and_it_decodes_or_is_named(at: int, byte: int) -> None:
    data = ARRAY[:at] + bytes([byte]) + ARRAY[at + 1 :]
    try:
        expected = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:  # noqa: BLE001  # numpy raises nearly anything
        with pytest.raises(SampleError, match='member "npy" cannot be decoded'):
            decoded({"npy": data})
    else:
        assert np.array_equal(decoded({"npy": data})["npy"], expected, equal_nan=True)
