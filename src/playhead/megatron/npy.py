"""`.npy` files written in pieces, with the bytes that `numpy.save` would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.lib import format as npy_format

from playhead.types import Array


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes | memoryview, /) -> object: ...


def write_header(file: Sink, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    about = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(cast("Any", file), about)  # it only writes


def write_piece(file: Sink, piece: Array) -> None:
    file.write(np.ascontiguousarray(piece).data)


def num_bytes(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> int:
    """The size of the file, its header of 128 bytes included."""
    return 128 + dtype.itemsize * int(np.prod(shape, dtype=np.int64))


def holds(path: Path, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bool:
    """Whether a file is there, whole, and an array of this type and shape."""
    try:
        with path.open("rb") as file:
            version = npy_format.read_magic(file)
            if version != (1, 0):
                return False
            found = npy_format.read_array_header_1_0(file)
            whole = path.stat().st_size == file.tell() + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    except (OSError, ValueError):
        return False
    return bool(found == (shape, False, dtype) and whole)
