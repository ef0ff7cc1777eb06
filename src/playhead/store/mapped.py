"""Whole files as arrays of bytes without open descriptors: small ones read, larger ones mapped and shared.

Python's `mmap` duplicates the descriptor (until 3.13, whose `trackfd=False` is the same as this), so libc is called.
Only our own files are mapped: truncating a mapped file would kill the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

SMALLEST_MAPPED = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """A file mapped read-only; released with the last array that is a view of it."""

    def __init__(self, descriptor: int, size: int) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._munmap, self._place = _libc.munmap, (address, size)
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, True)}

    def __del__(self) -> None:
        if hasattr(self, "_place"):
            self._munmap(*self._place)


def load_bytes(path: str | Path) -> npt.NDArray[np.uint8]:
    """The bytes of a file, read-only. A mapped file must not be truncated while they are in use."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size >= SMALLEST_MAPPED:
            return np.asarray(_Mapping(descriptor, size))
        data = os.read(descriptor, size)
        while len(data) < size and (more := os.read(descriptor, size - len(data))):
            data += more
    finally:
        os.close(descriptor)
    return np.frombuffer(data, dtype=np.uint8)


def read_ahead(path: str | Path) -> None:
    """Ask the system to start reading a file sequentially in the background."""
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
