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
from msgspec import Struct

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


class Items(Struct, frozen=True):
    """The text of a list, and where in it each item begins and ends."""

    text: ByteArray
    starts: IntArray
    ends: IntArray

    def __getitem__(self, i: int) -> bytes:
        return self.text[self.starts[i] : self.ends[i]].tobytes()


class Writer:
    """Room to write JSON in, kept from list to list."""

    def __init__(self) -> None:
        self._compact = bytearray(1 << 16)
        self._spaced = np.empty(1 << 17, dtype=np.uint8)
        self._bounds = np.empty((2, 1 << 10), dtype=np.int64)

    def items(self, values: list[Any]) -> Items:
        """The text of values whose floats are finite, as a list; good until the next.

        Law: equal to `dumps(values)`, and each item to its own `dumps`.
        """
        _encode_into(values, self._compact)
        size = len(self._compact)
        if 2 * size > self._spaced.size:
            self._spaced = np.empty(4 * size, dtype=np.uint8)
        if len(values) + 1 > self._bounds.shape[1]:
            self._bounds = np.empty((2, 2 * len(values) + 2), dtype=np.int64)
        starts, ends = self._bounds[0], self._bounds[1]
        written = _put_spaces(np.frombuffer(self._compact, dtype=np.uint8), self._spaced, starts, ends)
        if written < 0:
            return _one_by_one(values)
        return Items(self._spaced[:written], starts, ends)


def _one_by_one(values: list[Any]) -> Items:
    texts = [dumps(value) for value in values]
    ends = np.cumsum([len(text) + 2 for text in texts], dtype=np.int64) - 1
    starts = ends - np.array([len(text) for text in texts], dtype=np.int64)
    return Items(np.frombuffer(b"[" + b", ".join(texts) + b"]", dtype=np.uint8), starts, ends)


@kernel
def _put_spaces(text: ByteArray, spaced: ByteArray, starts: IntArray, ends: IntArray) -> int:
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
            if text[i - 2] not in (117, 115):
                return -1
        elif byte == 46 and i + 4 <= size and text[i - 2] == 48:  # 0.00001 and less have an exponent in Python
            leading = i < 3 or not 48 <= text[i - 3] <= 57
            if leading and text[i] == 48 and text[i + 1] == 48 and text[i + 2] == 48 and text[i + 3] == 48:
                return -1
    return at
