"""`.npy` files written in pieces, with the bytes that `numpy.save` would have written."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.lib import format as npy_format

from playhead.types import Array

HEADER_BYTES = 128  # as numpy pads it for arrays like these


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes | memoryview, /) -> object: ...


def write_header(file: Sink, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    about = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(cast("Any", file), about)  # it only writes


def write_piece(file: Sink, piece: Array) -> None:
    file.write(np.ascontiguousarray(piece).data)


def num_bytes(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> int:
    """The size of the file, its header included."""
    return HEADER_BYTES + dtype.itemsize * prod(shape)


def whole_array(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """The shape and type of the array in a file; None if there is no file, or not all of it."""
    try:
        with path.open("rb") as file:
            if npy_format.read_magic(file) != (1, 0):
                return None
            shape, in_columns, dtype = npy_format.read_array_header_1_0(file)
            whole = path.stat().st_size == file.tell() + dtype.itemsize * prod(shape)
    except (OSError, ValueError):
        return None
    return (shape, dtype) if whole and not in_columns else None


def read_part(path: Path, dtype: np.dtype[np.generic], count: int) -> Array:
    """The first numbers of an array that was found whole."""
    return np.fromfile(path, dtype, count, offset=HEADER_BYTES)
