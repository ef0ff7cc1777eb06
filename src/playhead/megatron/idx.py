"""Megatron's `.idx` files: read and checked against their own size and that of the `.bin` beside them."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from playhead.errors import DataError
from playhead.fingerprint import DIGEST_BYTES
from playhead.store import File, Stamp, is_url, open_file, stamp
from playhead.types import Array, IntArray

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPES: dict[int, np.dtype[np.generic]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.float64),
    7: np.dtype(np.float32),
    8: np.dtype(np.uint16),
}
_CHUNK = 1 << 24

Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Idx:
    """An index file that was found whole. `num_document_marks` is the length of its array: documents + 1.

    `digest` covers the header and the sequence lengths: all that a dataset cache depends on.
    """

    prefix: str
    dtype_code: int
    num_sequences: int
    num_document_marks: int
    has_modes: bool
    num_tokens: int
    stamp: Stamp
    digest: str

    @property
    def path(self) -> str:
        return idx_path(self.prefix)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return DTYPES[self.dtype_code]

    def lengths(self, first: int = 0, end: int | None = None) -> Lengths:
        """The lengths of the sequences in [first, end)."""
        count = (self.num_sequences if end is None else end) - first
        return self._array("<i4", count, HEADER.size + 4 * first).astype(np.int32, copy=False)

    def document_marks(self) -> IntArray:
        """The first sequence of each document, and the number of sequences at the end."""
        offset = HEADER.size + 12 * self.num_sequences
        return self._array("<i8", self.num_document_marks, offset).astype(np.int64, copy=False)

    def modes(self) -> npt.NDArray[np.int8]:
        offset = HEADER.size + 12 * self.num_sequences + 8 * self.num_document_marks
        return self._array("i1", self.num_sequences if self.has_modes else 0, offset).astype(np.int8, copy=False)

    def _array(self, dtype: str, count: int, offset: int) -> Array:
        """Part of the file. Law: it is the file that was found whole, not a later one under the same name."""
        if stamp(self.path) != self.stamp:
            raise DataError(
                f"{self.path}: changed while it was read",
                fix="let nobody write to it, then run it again",
            )
        if not is_url(self.path):
            return np.fromfile(self.path, dtype, count, offset=offset)
        with open_file(self.path) as file:
            return np.frombuffer(bytearray(file.read(offset, count * np.dtype(dtype).itemsize)), dtype)


def idx_path(prefix: str) -> str:
    return f"{prefix}.idx"


def bin_path(prefix: str) -> str:
    return f"{prefix}.bin"


def open_idx(prefix: str) -> Idx:
    """Read and check an index. Law: one that is returned has all its parts, and its `.bin` is as long as it says."""
    path = idx_path(prefix)
    before = stamp(path)
    with open_file(path) as file:
        code, num_sequences, num_marks = _header(file)
        has_modes = _has_modes(file, num_sequences, num_marks)
        _check_last_mark(file, num_sequences, num_marks)
        num_tokens, digest = _scan_lengths(file, num_sequences)
    found = Idx(prefix, code, num_sequences, num_marks, has_modes, num_tokens, before, digest)
    _check_bin(found)
    return found


def _header(file: File) -> tuple[int, int, int]:
    data = file.read(0, HEADER.size)
    restore = "write it again, or restore it from where it came"
    if data[: len(MAGIC)] != MAGIC:
        raise DataError(
            f"{file.path}: is not a Megatron index",
            found=f"first bytes {data[: len(MAGIC)]!r}" if data else "an empty file",
            expected=f"{MAGIC!r}",
            fix=restore,
        )
    if len(data) < HEADER.size:
        raise _truncated(file, HEADER.size)
    _, version, code, num_sequences, num_marks = HEADER.unpack(data)
    if version != VERSION:
        raise DataError(f"{file.path}: version {version}", expected=f"version {VERSION}", fix=restore)
    if code not in DTYPES:
        raise DataError(f"{file.path}: token type {code}", expected="a code from 1 to 8", fix=restore)
    return code, num_sequences, num_marks


def _has_modes(file: File, num_sequences: int, num_marks: int) -> bool:
    """Whether a byte for each sequence follows (multimodal data), by the size of the file."""
    size = HEADER.size + 12 * num_sequences + 8 * num_marks
    if file.size == size:
        return False
    if file.size != size + num_sequences:
        raise _truncated(file, size)
    return True


def _check_last_mark(file: File, num_sequences: int, num_marks: int) -> None:
    """The last document ends with the last sequence; Megatron refuses an index in which it does not."""
    offset = HEADER.size + 12 * num_sequences + 8 * (num_marks - 1)
    last = int.from_bytes(file.read(offset, 8), "little", signed=True) if num_marks else None
    if last != num_sequences:
        raise DataError(
            f"{file.path}: its documents do not end with its sequences",
            found="no document mark" if last is None else f"the last document mark is {last:,}",
            expected=f"{num_sequences:,}, the number of sequences",
            fix="copy it again, or write the dataset again",
        )


def _scan_lengths(file: File, num_sequences: int) -> tuple[int, str]:
    hashed = hashlib.blake2b(file.read(0, HEADER.size), digest_size=DIGEST_BYTES)
    num_tokens, offset, end = 0, HEADER.size, HEADER.size + 4 * num_sequences
    while offset < end:
        piece = file.read(offset, min(_CHUNK, end - offset))
        hashed.update(piece)
        lengths = np.frombuffer(piece, "<i4")
        if lengths.min() < 0:
            place = (offset - HEADER.size) // 4 + int(lengths.argmin())
            raise DataError(
                f"{file.path}: sequence {place:,} has a negative length",
                found=f"{lengths.min()}",
                fix="write the index again",
            )
        num_tokens += int(lengths.sum(dtype=np.int64))
        offset += len(piece)
    return num_tokens, hashed.hexdigest()


def _check_bin(idx: Idx) -> None:
    path = bin_path(idx.prefix)
    size, expected = stamp(path).size, idx.num_tokens * idx.dtype.itemsize
    if size != expected:
        raise DataError(
            f"{path}: is not as long as its index says",
            found=f"{size:,} bytes",
            expected=f"{expected:,}: {idx.num_tokens:,} tokens of {idx.dtype.itemsize} bytes",
            fix="copy both files again, or write the dataset again",
        )


def _truncated(file: File, expected: int) -> DataError:
    return DataError(
        f"{file.path}: is not as long as its header says",
        found=f"{file.size:,} bytes",
        expected=f"{expected:,}",
        fix="copy it again, or write the dataset again",
    )
