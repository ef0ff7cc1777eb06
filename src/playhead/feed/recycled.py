"""Large arrays in reused memory: malloc keeps one arena per thread, so memory freed by threads would accumulate."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import deque
from functools import partial
from math import prod
from typing import Any

import numpy as np

from playhead.types import Array

SMALLEST_BYTES = 1 << 18
_MOST_FREE = 8


class Recycled:
    """Memory for the arrays of batches. Threads may share it; it has no lock, since releases may come at any moment.

    Law: memory is reused only when nothing refers to the array that used it, nor to a view of it.
    """

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque(maxlen=_MOST_FREE)
        self._held: dict[int, weakref.ref[Any]] = {}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An uninitialized array."""
        dtype = np.dtype(dtype)
        size = prod(shape) * dtype.itemsize
        if size < SMALLEST_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        memory = self._taken(size)
        # Arrays keep a reference to the object that provides their buffer: a stand-in for one use of the memory.
        stand_in = (ctypes.c_char * len(memory)).from_buffer(memory)
        number = id(stand_in)
        self._held[number] = weakref.ref(stand_in, partial(_released, self._held, self._free, number, memory))
        return np.frombuffer(memoryview(stand_in), dtype, prod(shape)).reshape(shape)

    def _taken(self, size: int) -> mmap.mmap:
        """Free memory of about the size; otherwise new memory, and one free block that does not fit is dropped."""
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if size <= len(memory) <= 2 * size:
                return memory
            self._free.append(memory)
        if self._free:
            self._free.popleft()
        # Private: a fork gets a copy, so nothing is overwritten there either.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, flags)


def _released(held: dict[int, Any], free: deque[mmap.mmap], number: int, memory: mmap.mmap, _: object) -> None:
    held.pop(number, None)
    free.append(memory)
