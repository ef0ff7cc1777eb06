"""Arrays on disk: streamed out piece by piece with a digest, loaded read-only."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from playhead.errors import NotPreparedError
from playhead.fingerprint import ArrayDigest
from playhead.store import Buffer, load_bytes, unreadable, writing_to
from playhead.types import Array

_LONGEST_HEADER = 1 << 9
# numpy's own header parser raises many types of errors for a damaged one, and takes several times as long.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|]\w+)', 'fortran_order': False, 'shape': \((\d+), ?(\d+)?\), \} *\n",
    re.DOTALL,
)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes before the numbers of an `.npy` file, as `numpy.save` writes them."""
    header = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()


class ArrayWriter:
    """An `.npy` file written piece by piece. Its shape is given in advance, and kept."""

    def __init__(self, path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
        self._path = path
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._left = int(np.prod(shape))
        self._digest = ArrayDigest()
        with writing_to(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
            self._write(npy_header(self._dtype, shape))

    def add(self, piece: Array) -> None:
        ready = np.ascontiguousarray(piece, dtype=self._dtype)
        self._left -= ready.size
        if ready.size:
            self._write(ready.data.cast("B"))

    def _write(self, data: Buffer) -> None:
        self._digest.update(np.frombuffer(data, dtype=np.uint8))
        with writing_to(self._path):
            self._file.write(data)

    def close(self) -> str:
        """Finish the file and sync it to disk. Returns the digest of its bytes."""
        assert self._left == 0, f"{self._path}: {self._left} elements are missing"
        with writing_to(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._digest.hexdigest()

    def abandon(self) -> None:
        try:
            self._file.close()
        except OSError:  # an error is already being raised
            return


def save_array(path: Path, values: Array) -> str:
    """A whole array; returns its digest."""
    writer = ArrayWriter(path, values.dtype, values.shape)
    try:
        writer.add(values)
        return writer.close()
    finally:
        writer.abandon()


def map_array(path: str | Path, dtype: Any) -> Array:
    """A read-only array, without an open descriptor: a large one is mapped, and shared by every process of the node."""
    try:
        return _array(load_bytes(path), np.dtype(dtype).newbyteorder("<"))
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise NotPreparedError(
            f"{path}: part of an index is missing or broken",
            found=str(error),
            fix="run `playhead prepare --force` on the recipe",
        ) from error
    except OSError as error:
        raise unreadable(str(path), error) from error


def _array(data: Array, expected: np.dtype[Any]) -> Array:
    """The array in the bytes of an `.npy` file as `ArrayWriter` writes it."""
    header = _HEADER.match(data[:_LONGEST_HEADER].tobytes())
    if header is None or header[1].decode() != expected.str:
        raise ValueError(f"not an array of {expected} written by Playhead")
    shape = [int(size) for size in header.groups()[1:] if size is not None]
    return data[header.end() :].view(expected).reshape(shape)
