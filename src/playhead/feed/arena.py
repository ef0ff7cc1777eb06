"""Shared memory of worker processes and their owner: the worker's side (the owner's is `feed/shared_memory.py`)."""

from __future__ import annotations

import errno
import mmap
import os
import warnings
from multiprocessing.connection import Connection
from threading import Condition
from typing import Any

import numpy as np

from playhead.feed.shared_memory import GROWTH_BYTES, NUMBER, Span
from playhead.types import Array

_ALIGNMENT = 64
SMALLEST_SHARED_BYTES = 1 << 14  # smaller arrays travel sooner with the rest of the batch


class Arena:
    """Allocates the arrays of the current batch in shared buffers. `free` is the pipe of free buffers."""

    def __init__(self, free: Connection) -> None:
        self._free = free
        self._descriptors: dict[int, int | None] = {}
        self._announced = Condition()
        self._mappings: dict[int, mmap.mmap] = {}
        self._number: int | None = None  # of the buffer in use
        self._regions: list[tuple[int, int]] = []  # its addresses: first and end of each of its mappings
        self._outgrown: list[mmap.mmap] = []
        self._used = 0
        self._is_exhausted = False

    def announced(self, number: int, descriptor: int | None) -> None:
        """Register a new buffer. `descriptor` is None where this process had no descriptor left for it."""
        with self._announced:
            self._descriptors[number] = descriptor
            self._announced.notify()

    def forget(self, number: int) -> None:
        """Unregister a retired buffer. Only the owner held it, so it is not in use here."""
        self._mappings.pop(number, None)
        descriptor = self._descriptors.pop(number)
        if descriptor is not None:
            os.close(descriptor)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An uninitialized array, in shared memory if it is large."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=object))
        size = count * dtype.itemsize
        if size < SMALLEST_SHARED_BYTES or dtype.hasobject or not self._reserve(size):
            return np.empty(shape, dtype)
        assert self._number is not None
        array = np.frombuffer(self._mappings[self._number], dtype, count, self._used).reshape(shape)
        self._used += size
        return array

    def place(self, data: memoryview) -> Span | None:
        """The span of `data` in the buffer, copied there if needed; None where it does not go through shared memory."""
        size = data.nbytes
        if size < SMALLEST_SHARED_BYTES:
            return None
        source = np.frombuffer(data, np.uint8)
        first = source.__array_interface__["data"][0]
        for region, end in self._regions:
            if region <= first and first + size <= end:
                return first - region, size
        if not self._reserve(size):
            return None
        assert self._number is not None
        offset = self._used
        np.frombuffer(self._mappings[self._number], np.uint8, size, offset)[:] = source
        self._used += size
        return offset, size

    def hand_over(self) -> tuple[int, int]:
        """The number and capacity of the buffer in use, which belongs to the owner from now on."""
        assert self._number is not None
        found = self._number, len(self._mappings[self._number])
        self._number = None
        self.clear()
        return found

    def clear(self) -> None:
        """Forget what was put in the buffer."""
        self._used = 0
        self._outgrown.clear()
        mapping = None if self._number is None else self._mappings.get(self._number)
        self._regions = [] if mapping is None else [_addresses(mapping)]

    def _reserve(self, size: int) -> bool:
        """Make room at the next aligned offset of a buffer."""
        if self._is_exhausted:
            return False
        if self._number is None:
            self._take()
        assert self._number is not None
        self._used = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        mapping = self._mappings.get(self._number)
        if mapping is not None and self._used + size <= len(mapping):
            return True
        if mapping is not None:
            self._outgrown.append(mapping)  # arrays in it stay valid: it shows the same memory
        try:
            mapping = _grown(self._descriptors[self._number], self._used + size)
        except OSError as error:
            warnings.warn(
                f"shared memory has no room for a batch ({error}); batches are sent through pipes, which is slower",
                RuntimeWarning,
                stacklevel=1,
            )
            self._is_exhausted = True
            return False
        self._mappings[self._number] = mapping
        self._regions.append(_addresses(mapping))
        return True

    def _take(self) -> None:
        data = os.read(self._free.fileno(), NUMBER.size)
        if len(data) != NUMBER.size:
            os._exit(0)  # the owner is gone
        (number,) = NUMBER.unpack(data)
        with self._announced:
            self._announced.wait_for(lambda: number in self._descriptors)
        self._number = number
        self.clear()


def _addresses(mapping: mmap.mmap) -> tuple[int, int]:
    first = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    return first, first + len(mapping)


def _grown(descriptor: int | None, size: int) -> mmap.mmap:
    """Map a buffer of at least `size` bytes. Its memory is allocated first: else writing could kill the process."""
    if descriptor is None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    capacity = -(-size // GROWTH_BYTES) * GROWTH_BYTES
    if os.fstat(descriptor).st_size < capacity:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, capacity)  # leaves the size unchanged where there is no room
        else:
            os.ftruncate(descriptor, capacity)
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size)
