"""JSON as Python's own `json` reads and writes it, to the byte, at several times its speed.

msgspec reads the same values wherever it reads a text at all. What it writes differs in the white space, which a kernel
puts in, and in numbers that Python writes with an exponent, which the kernel finds; Python writes those itself.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from playhead.types import IntArray, kernel

ByteArray = npt.NDArray[np.uint8]

_decode = msgspec.json.Decoder().decode
_encode_into = msgspec.json.Encoder().encode_into
_python_encode = json.JSONEncoder(ensure_ascii=False).encode


def loads(line: bytes) -> Any:
    """The value of a UTF-8 text.

    Law: equal to `json.loads`; raises ValueError where that does, and for text that is not UTF-8.
    """
    try:
        return _decode(line)
    except (msgspec.DecodeError, ValueError):
        return json.loads(line.decode("utf-8"))


def dumps(value: Any) -> bytes:
    """Law: equal to `json.dumps(value, ensure_ascii=False)` in UTF-8. Lone surrogates raise UnicodeEncodeError."""
    return _python_encode(value).encode("utf-8")


class Writer:
    """Writes values as JSON into room that is given; keeps some of its own from list to list."""

    def __init__(self) -> None:
        self._compact = bytearray(1 << 16)

    def prepare(self, values: list[Any]) -> int:
        """Take values, whose floats are finite, to be written by `put`. Tells how much room they need at most."""
        _encode_into(values, self._compact)
        self._values = values
        return 8 * len(self._compact) + 16

    def put(self, room: ByteArray, at: int, starts: IntArray, ends: IntArray) -> int:
        """Write the text of a list of the values from a place on, and note where each begins and ends in the room.

        Law: equal to `dumps(values)`, and each item to its own `dumps`.
        """
        written = _put_spaces(np.frombuffer(self._compact, dtype=np.uint8), room, at, starts, ends)
        return _put_one_by_one(self._values, room, at, starts, ends) if written < 0 else written


def _put_one_by_one(values: list[Any], room: ByteArray, at: int, starts: IntArray, ends: IntArray) -> int:
    texts = [dumps(value) for value in values]
    whole = b"[" + b", ".join(texts) + b"]"
    room[at : at + len(whole)] = np.frombuffer(whole, dtype=np.uint8)
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    ends[: len(texts)] = np.cumsum(sizes + 2) - 1 + at
    starts[: len(texts)] = ends[: len(texts)] - sizes
    return at + len(whole)


@kernel
def _put_spaces(text: ByteArray, spaced: ByteArray, at: int, starts: IntArray, ends: IntArray) -> int:
    """Copy the compact text of a list with a space after each colon and comma, and note where its items are.

    Returns where it ended, or -1 where a number may be written otherwise by Python.
    """
    depth, item = 0, 0
    i, size = 0, text.size
    while i < size:
        byte = text[i]
        spaced[at] = byte
        at += 1
        i += 1
        if byte == 34:  # a quote: copy to the end of the string
            while True:
                byte = text[i]
                spaced[at] = byte
                at += 1
                i += 1
                if byte == 92:
                    spaced[at] = text[i]
                    at += 1
                    i += 1
                elif byte == 34:
                    break
        elif byte == 58:
            spaced[at] = 32
            at += 1
        elif byte == 44:
            if depth == 1:
                ends[item] = at - 1
                item += 1
                starts[item] = at + 1
            spaced[at] = 32
            at += 1
        elif byte in (91, 123):
            depth += 1
            if depth == 1 and starts.size:
                starts[0] = at
        elif byte in (93, 125):
            depth -= 1
            if depth == 0 and item < ends.size:
                ends[item] = at - 1
        elif byte == 101:  # an e: of a number, or of true and false
            if text[i - 2] not in (117, 115):
                return -1
        elif byte == 46 and i + 4 <= size and text[i - 2] == 48:  # 0.00001 and less have an exponent in Python
            leading = i < 3 or not 48 <= text[i - 3] <= 57
            if leading and text[i] == 48 and text[i + 1] == 48 and text[i + 2] == 48 and text[i + 3] == 48:
                return -1
    return at
