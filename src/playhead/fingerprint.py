"""Digests of values: equal values give equal digests in every process and on every platform."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from playhead.types import Array

DIGEST_BYTES = 16


def digest(value: Any) -> str:
    """The digest of a JSON-like value; dictionaries count as equal whatever the order of their keys."""
    return digest_bytes(msgspec.json.encode(value, order="sorted"))


def digest_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


class ArrayDigest:
    """A digest of an array fed piece by piece; the pieces' sizes do not matter."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def update(self, piece: Array) -> None:
        little = piece.astype(piece.dtype.newbyteorder("<"), copy=False)
        self._hash.update(np.ascontiguousarray(little).data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
