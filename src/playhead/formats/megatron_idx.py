"""Megatron's `.idx` files: read, checked against their own size and that of the `.bin`, and written.

Law: the bytes that are written are those of megatron-core's `IndexedDatasetBuilder` for the same documents.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from playhead.errors import DataError, StoreError
from playhead.fingerprint import DIGEST_BYTES
from playhead.store import File, Files, Ranges, open_file, replacing
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
_MOST_UINT16 = 65500
_CHUNK = 1 << 20  # of lengths

Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Idx:
    """An index file that was checked. `num_document_marks` is the length of its array: documents + 1.

    `digest` covers the header and the sequence lengths: all that a dataset cache depends on. `token_counts` has the
    number of tokens in each requested range of sequences.
    """

    prefix: str
    file: File
    dtype_code: int
    num_sequences: int
    num_document_marks: int
    has_modes: bool
    num_tokens: int
    token_counts: Mapping[tuple[int, int], int]
    digest: str

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return DTYPES[self.dtype_code]

    def lengths(self, first: int = 0, end: int | None = None) -> Lengths:
        """The lengths of the sequences in [first, end)."""
        count = (self.num_sequences if end is None else end) - first
        return self._array("<i4", count, HEADER.size + 4 * first)

    def pointers(self, first: int = 0, end: int | None = None) -> IntArray:
        """Where the sequences in [first, end) begin in the `.bin`."""
        count = (self.num_sequences if end is None else end) - first
        return self._array("<i8", count, HEADER.size + 4 * self.num_sequences + 8 * first)

    def document_marks(self, first: int = 0, end: int | None = None) -> IntArray:
        """The first sequence of each document in [first, end); the last mark is the number of sequences."""
        count = (self.num_document_marks if end is None else end) - first
        return self._array("<i8", count, HEADER.size + 12 * self.num_sequences + 8 * first)

    def modes(self) -> npt.NDArray[np.int8]:
        offset = HEADER.size + 12 * self.num_sequences + 8 * self.num_document_marks
        return self._array("i1", self.num_sequences if self.has_modes else 0, offset)

    def _array(self, dtype: str, count: int, offset: int) -> Array:
        """Part of the file. Law: it is the file that was checked, not a later one under the same name."""
        found = np.empty(count, dtype)
        with _unchanged(self.file):
            _fill(found, self.file, offset)
        return found.astype(found.dtype.newbyteorder("="), copy=False)


def idx_path(prefix: str) -> str:
    return f"{prefix}.idx"


def bin_path(prefix: str) -> str:
    return f"{prefix}.bin"


def open_idx(
    files: Files, prefix: str, ranges_of: Callable[[int], Sequence[tuple[int, int]]] = lambda _num_sequences: ()
) -> Idx:
    """Read and check an index, and count the tokens within each requested range of sequences.

    Law: a returned index is complete, and its `.bin` has the size that it implies.
    """
    file = open_file(files, idx_path(prefix))
    with _unchanged(file):
        code, num_sequences, num_marks = _header(file)
        has_modes = _has_modes(file, num_sequences, num_marks)
        _check_last_mark(file, num_sequences, num_marks)
        whole = (0, num_sequences)
        counts, digest = _scan_lengths(file, num_sequences, [whole, *ranges_of(num_sequences)])
    found = Idx(prefix, file, code, num_sequences, num_marks, has_modes, counts[whole], counts, digest)
    _check_bin(files, found)
    return found


def token_type(file: File) -> np.dtype[np.generic]:
    """The token type of an index, from its header."""
    return DTYPES[_header(file)[0]]


@contextmanager
def _unchanged(file: File) -> Iterator[None]:
    """The error for an index file that changed while it was read."""
    try:
        yield
    except StoreError as error:
        if file.files.stamp(file.path) == file.stamp:
            raise
        raise StoreError(
            f"{file.path}: changed while it was read", fix="make sure that no process writes to it, then run it again"
        ) from error


def _fill(array: Array, file: File, offset: int) -> None:
    """The bytes from `offset` straight into an array."""
    if array.size:
        ranges = Ranges([offset], [offset + array.nbytes])
        file.files.read(file.path, file.stamp, ranges, [array.view(np.uint8).data])


def _header(file: File) -> tuple[int, int, int]:
    data = file.read(0, HEADER.size)
    restore = "write it again, or restore it"
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


def _scan_lengths(
    file: File, num_sequences: int, ranges: Sequence[tuple[int, int]]
) -> tuple[dict[tuple[int, int], int], str]:
    """The tokens in each range of sequences and the digest, reading the lengths once."""
    hashed = hashlib.blake2b(file.read(0, HEADER.size), digest_size=DIGEST_BYTES)
    counts = dict.fromkeys(ranges, 0)
    buffer = np.empty(min(_CHUNK, num_sequences), "<i4")
    for start in range(0, num_sequences, _CHUNK):
        lengths = buffer[: num_sequences - start]
        _fill(lengths, file, HEADER.size + 4 * start)
        hashed.update(lengths.data)
        if lengths.min() < 0:
            raise DataError(
                f"{file.path}: sequence {start + int(lengths.argmin()):,} has a negative length",
                found=f"{lengths.min()}",
                fix="write the index again",
            )
        for first, end in counts:
            inside = lengths[max(first - start, 0) : max(end - start, 0)]
            counts[first, end] += int(inside.sum(dtype=np.int64))
    return counts, hashed.hexdigest()


def _check_bin(files: Files, idx: Idx) -> None:
    path = bin_path(idx.prefix)
    size, expected = files.stamp(path).size, idx.num_tokens * idx.dtype.itemsize
    if size != expected:
        raise DataError(
            f"{path}: does not have the size that its index implies",
            found=f"{size:,} bytes",
            expected=f"{expected:,}: {idx.num_tokens:,} tokens of {idx.dtype.itemsize} bytes",
            fix="copy both files again, or write the dataset again",
        )


def _truncated(file: File, expected: int) -> DataError:
    return DataError(
        f"{file.path}: does not have the size that its header implies",
        found=f"{file.size:,} bytes",
        expected=f"{expected:,}",
        fix="copy it again, or write the dataset again",
    )


def best_dtype(vocab_size: int) -> np.dtype[np.generic]:
    """The type that Megatron's own preprocessing chooses for a vocabulary."""
    return np.dtype(np.uint16 if vocab_size < _MOST_UINT16 else np.int32)


def write_idx(
    prefix: str,
    dtype: np.dtype[np.generic],
    lengths: Lengths,
    marks: IntArray,
    modes: npt.NDArray[np.int8] | None = None,
) -> None:
    """Write the index of an existing `.bin`. It gets its final name when it is complete."""
    code = next(code for code, known in DTYPES.items() if known == dtype)
    pointers = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], dtype=np.int64, out=pointers[1:])
    with replacing(idx_path(prefix)) as file:
        file.write(HEADER.pack(MAGIC, VERSION, code, len(lengths), len(marks)))
        file.write(np.ascontiguousarray(lengths, "<i4").data)
        file.write(np.ascontiguousarray(pointers * dtype.itemsize, "<i8").data)
        file.write(np.ascontiguousarray(marks, "<i8").data)
        if modes is not None:
            file.write(np.ascontiguousarray(modes).data)
