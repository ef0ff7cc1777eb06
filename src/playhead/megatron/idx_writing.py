"""A dataset written piece by piece: tokens into `.bin`, then the `.idx` over them. Both take their names at the end.

Law: the bytes are those of megatron-core's `IndexedDatasetBuilder` for the same documents.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from playhead.megatron.idx import DTYPES, HEADER, MAGIC, VERSION, idx_path
from playhead.store import replacing
from playhead.types import IntArray

_MOST_UINT16 = 65500


def code_of(dtype: np.dtype[np.generic]) -> int:
    return next(code for code, known in DTYPES.items() if known == dtype)


def best_dtype(vocab_size: int) -> np.dtype[np.generic]:
    """The type that Megatron's own preprocessing chooses for a vocabulary."""
    return np.dtype(np.uint16 if vocab_size < _MOST_UINT16 else np.int32)


def write_idx(
    prefix: str,
    dtype: np.dtype[np.generic],
    lengths: npt.NDArray[np.int32],
    marks: IntArray,
    modes: npt.NDArray[np.int8] | None = None,
) -> None:
    pointers = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], dtype=np.int64, out=pointers[1:])
    with replacing(idx_path(prefix)) as file:
        file.write(HEADER.pack(MAGIC, VERSION, code_of(dtype), len(lengths), len(marks)))
        file.write(np.ascontiguousarray(lengths, "<i4").data)
        file.write(np.ascontiguousarray(pointers * dtype.itemsize, "<i8").data)
        file.write(np.ascontiguousarray(marks, "<i8").data)
        if modes is not None:
            file.write(np.ascontiguousarray(modes).data)
