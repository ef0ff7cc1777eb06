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


def loads(line: bytes) -> tuple[Any, bool]:
    """The value of a UTF-8 text, and whether msgspec has read it: then all its numbers are finite.

    Law: equal to `json.loads`; raises ValueError where that does, and for text that is not UTF-8.
    """
    try:
        return _decode(line), True
    except (msgspec.DecodeError, ValueError):
        return json.loads(line.decode("utf-8")), False


def dumps(value: Any) -> bytes:
    """Law: equal to `json.dumps(value, ensure_ascii=False)` in UTF-8. Lone surrogates raise UnicodeEncodeError."""
    return _python_encode(value).encode("utf-8")


class Writer:
    """Room to write JSON in, kept from value to value."""

    def __init__(self) -> None:
        self._compact = bytearray(1 << 16)
        self._spaced = np.empty(1 << 17, dtype=np.uint8)
        self._bounds = np.empty((2, 1 << 10), dtype=np.int64)

    def dumps(self, value: Any) -> bytes:
        """As `dumps`, for values whose floats are finite."""
        text, _ = self.dumps_items([value])
        return text[1:-1]

    def dumps_items(self, values: list[Any]) -> tuple[bytes, list[tuple[int, int]]]:
        """The text of a list of values whose floats are finite, and where in it each value begins and ends."""
        _encode_into(values, self._compact)
        size = len(self._compact)
        if 2 * size > self._spaced.size:
            self._spaced = np.empty(4 * size, dtype=np.uint8)
        if len(values) + 1 > self._bounds.shape[1]:
            self._bounds = np.empty((2, 2 * len(values) + 2), dtype=np.int64)
        starts, ends = self._bounds
        written = put_spaces(np.frombuffer(self._compact, dtype=np.uint8), self._spaced, starts, ends)
        if written < 0:
            return _one_by_one(values)
        count = len(values)
        return self._spaced[:written].tobytes(), list(zip(starts[:count].tolist(), ends[:count].tolist(), strict=True))


def _one_by_one(values: list[Any]) -> tuple[bytes, list[tuple[int, int]]]:
    texts = [dumps(value) for value in values]
    bounds, at = [], 1
    for text in texts:
        bounds.append((at, at + len(text)))
        at += len(text) + 2
    return b"[" + b", ".join(texts) + b"]", bounds


@kernel
def put_spaces(text: ByteArray, spaced: ByteArray, starts: IntArray, ends: IntArray) -> int:
    """Copy the compact text of a list with a space after each colon and comma, and note where its items are.

    Returns the number of bytes, or -1 where a number may be written otherwise by Python.
    """
    at, depth, item = 0, 0, 0
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
            if depth == 1:
                starts[0] = at
        elif byte in (93, 125):
            depth -= 1
            if depth == 0:
                ends[item] = at - 1
        elif byte == 101:  # an e: of a number, or of true and false
            before = text[i - 2]
            if before != 117 and before != 115:
                return -1
        elif byte == 46 and i + 4 <= size and text[i - 2] == 48:  # 0.00001 and less have an exponent in Python
            leading = i < 3 or not 48 <= text[i - 3] <= 57
            if leading and text[i] == 48 and text[i + 1] == 48 and text[i + 2] == 48 and text[i + 3] == 48:
                return -1
    return at
