"""The sample index: where in the shuffled documents each sample begins, as (position, offset).

Law: sample s begins at token s * sequence_length of the documents laid end to end; row 0 is (0, 0) even if the first
document is empty. Samples overlap by one token, so the rows are one more than the samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from playhead.types import Array, IntArray, kernel

LARGEST_INT32 = 2**31 - 1
CHUNK_ROWS = 1 << 15
_AHEAD = 1024


def num_samples_of(num_tokens: int, sequence_length: int, *, keep_partial: bool) -> int:
    """Samples in the documents; a kept partial last one is counted as Megatron does, in single precision."""
    if not keep_partial:
        return (num_tokens - 1) // sequence_length
    return int(np.ceil(np.float32(num_tokens - 1) / np.float32(sequence_length)))


def sample_dtype(num_positions: int) -> np.dtype[np.generic]:
    """The dtype depends on the positions only: a length is already an int32 in the `.idx`."""
    return np.dtype(np.int32 if num_positions <= LARGEST_INT32 else np.int64)


def sample_rows(
    lengths: npt.NDArray[np.int32],
    documents: npt.NDArray[np.int32],
    first: int,
    sequence_length: int,
    num_samples: int,
    dtype: np.dtype[np.generic],
) -> Iterator[Array]:
    """The rows of the sample index, chunk by chunk; a chunk is overwritten by the next.

    `lengths[document - first]` is the length of a document.
    """
    cursor = np.zeros(2, np.int64)
    chunk = np.empty((min(CHUNK_ROWS, num_samples + 1), 2), dtype)
    for start in range(0, num_samples + 1, CHUNK_ROWS):
        rows = chunk[: min(CHUNK_ROWS, num_samples + 1 - start)]
        fill_rows(lengths, documents, first, start, sequence_length, cursor, rows)
        yield rows


@kernel
def fill_rows(
    lengths: npt.NDArray[np.int32],
    documents: npt.NDArray[np.int32],
    first: int,
    start: int,
    sequence_length: int,
    cursor: IntArray,
    rows: Array,
) -> None:
    """Rows from `start` on. `cursor` is the position of the document reached and the token at which it begins.

    Lengths are looked up in blocks ahead of use, so that many of these random memory accesses overlap.
    """
    ahead = np.empty(_AHEAD, np.int64)
    position, begin = cursor[0], cursor[1]
    base = position
    known = _look_ahead(lengths, documents, first, base, ahead)
    last = len(documents) - 1
    for k in range(len(rows)):
        token = (start + k) * sequence_length
        while token > 0 and token - begin >= ahead[position - base]:
            if position == last:  # a partial sample ends with the last token
                token = begin + ahead[position - base] - 1
                break
            begin += ahead[position - base]
            position += 1
            if position - base == known:
                base = position
                known = _look_ahead(lengths, documents, first, base, ahead)
        rows[k, 0] = position
        rows[k, 1] = token - begin
    cursor[0], cursor[1] = position, begin


@kernel
def _look_ahead(
    lengths: npt.NDArray[np.int32], documents: npt.NDArray[np.int32], first: int, base: int, ahead: IntArray
) -> int:
    known = min(len(ahead), len(documents) - base)
    for i in range(known):
        ahead[i] = lengths[documents[base + i] - first]
    return known
