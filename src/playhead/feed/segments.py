"""Memory that worker processes and their owner share, in segments that are used again and again.

A segment is memory without a name, known by its descriptor alone: nothing is left behind, whichever process is killed.
The owner makes segments and sends every worker their descriptors. Free segments are numbers in a pipe that all workers
read from: a worker takes one for the arrays of a batch, and the owner returns it to the pipe when nothing refers to
those arrays any more.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import struct
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import Condition
from typing import Any

import numpy as np

from playhead.errors import StoreError
from playhead.store.local import FAILURES
from playhead.types import Array

Span = tuple[int, int]  # offset and size, in bytes

_NUMBER = struct.Struct("=i")
_ALIGNMENT = 64
_GROWTH_BYTES = 1 << 18
SMALLEST_SHARED_BYTES = 1 << 14  # smaller arrays travel sooner with the rest of the batch


class Segments:
    """The owner's side. `free` is the pipe; `announce` sends every worker a new segment's number and descriptor.

    There are as many segments as batches are made ahead. Where the user keeps batches, more are made, up to `most`;
    from then on arrays are copied out of their segment. Laws: a segment is not written to while anything refers to
    its memory; a worker never waits for a segment while the owner waits for its result.
    """

    def __init__(
        self, num_workers: int, lookahead: int, free: Connection, announce: Callable[[int, int], None]
    ) -> None:
        self._free, self._announce = free, announce
        self._lookahead_elsewhere = (num_workers - 1) * lookahead  # what other workers may hold of later batches
        self.most = 2 * num_workers * lookahead + 2
        self._descriptors: list[int] = []
        self._mappings: list[mmap.mmap | None] = []
        self._held: dict[int, weakref.ref[Any]] = {}

    def __len__(self) -> int:
        return len(self._descriptors)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Forget all segments. Arrays in the user's hands keep their memory."""
        self._held.clear()
        self._mappings.clear()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def add(self) -> None:
        try:
            descriptor = _new_descriptor()
        except OSError as error:
            raise StoreError(
                "no shared memory can be made for worker processes",
                found=str(error),
                fix=FAILURES.get(error.errno or 0, "use fewer workers, or worker threads"),
            ) from error
        number = len(self._descriptors)
        self._descriptors.append(descriptor)
        self._mappings.append(None)
        self._announce(number, descriptor)
        _write_free(self._free, number)

    def ensure_progress(self) -> None:
        """To be called before the owner waits: let there be a segment for the batch it waits for."""
        while len(self) < min(self.most, self._lookahead_elsewhere + 1 + len(self._held)):
            self.add()

    def views(self, segment: tuple[int, int], spans: Sequence[Span]) -> list[memoryview]:
        """Spans of a segment (its number and capacity) that a worker has filled; it is free when none is in use."""
        number, capacity = segment
        mapping = self._mappings[number]
        if mapping is None or len(mapping) < capacity:
            mapping = self._mappings[number] = mmap.mmap(self._descriptors[number], capacity)
        if self._lookahead_elsewhere + 1 + len(self._held) >= self.most:
            whole = memoryview(mapping)
            copies = [memoryview(bytearray(whole[offset : offset + size])) for offset, size in spans]
            _write_free(self._free, number)
            return copies
        # Arrays hold on to the object that their buffer comes from. A mapping stays; this is its stand-in for one use.
        stand_in = (ctypes.c_char * len(mapping)).from_buffer(mapping)
        self._held[number] = weakref.ref(stand_in, partial(_released, self._held, self._free, number, os.getpid()))
        whole = memoryview(stand_in).cast("B")
        return [whole[offset : offset + size] for offset, size in spans]


def _released(held: dict[int, Any], free: Connection, number: int, owner: int, _: object) -> None:
    if os.getpid() == owner and held.pop(number, None) is not None:  # a fork of the owner has no say
        _write_free(free, number)


def _write_free(free: Connection, number: int) -> None:
    """May be called at any moment, in any thread: whoever drops the last reference gets here."""
    with suppress(BrokenPipeError):  # the workers may be gone
        os.write(free.fileno(), _NUMBER.pack(number))


class Arena:
    """A worker's side: where the arrays of the batch that is being made are put."""

    def __init__(self, free: Connection) -> None:
        self._free = free
        self._descriptors: dict[int, int] = {}
        self._announced = Condition()
        self._mappings: dict[int, mmap.mmap] = {}
        self._number: int | None = None  # of the segment in use
        self._regions: list[tuple[int, int]] = []  # its addresses: first and end of each of its mappings
        self._outgrown: list[mmap.mmap] = []
        self._used = 0
        self._is_exhausted = False

    def announced(self, number: int, descriptor: int) -> None:
        with self._announced:
            self._descriptors[number] = descriptor
            self._announced.notify()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array whose contents are not set, in shared memory if it is large."""
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
        """The span of data in the segment, copied to there unless it is there; None where it cannot be."""
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
        """The number and capacity of the segment in use, which is the owner's from now on."""
        assert self._number is not None
        found = self._number, len(self._mappings[self._number])
        self._number = None
        self.clear()
        return found

    def clear(self) -> None:
        """Forget what was put in the segment."""
        self._used = 0
        self._outgrown.clear()
        mapping = None if self._number is None else self._mappings.get(self._number)
        self._regions = [] if mapping is None else [_addresses(mapping)]

    def _reserve(self, size: int) -> bool:
        """Make room at the next aligned place of a segment."""
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
        data = os.read(self._free.fileno(), _NUMBER.size)
        if len(data) != _NUMBER.size:
            os._exit(0)  # the owner is gone
        (number,) = _NUMBER.unpack(data)
        with self._announced:
            self._announced.wait_for(lambda: number in self._descriptors)
        self._number = number
        self.clear()


def _addresses(mapping: mmap.mmap) -> tuple[int, int]:
    first = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    return first, first + len(mapping)


def _grown(descriptor: int, size: int) -> mmap.mmap:
    """A segment of at least a size, mapped. Its memory is there: else writing to it could end the process."""
    capacity = -(-size // _GROWTH_BYTES) * _GROWTH_BYTES
    if os.fstat(descriptor).st_size < capacity:
        os.ftruncate(descriptor, capacity)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, capacity)
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size)


def _new_descriptor() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("playhead", os.MFD_CLOEXEC)
    from _posixshmem import shm_open, shm_unlink  # type: ignore[import-not-found]  # of multiprocessing.shared_memory

    name = f"/playhead-{secrets.token_hex(8)}"
    descriptor = shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    shm_unlink(name)
    return int(descriptor)
