"""Shared memory of worker processes and their owner, in buffers that are reused: the owner's side.

A buffer is anonymous memory, known only by its descriptor: nothing is left behind, whichever process is killed.
The owner makes buffers and sends every worker their descriptors. Free buffers are numbers in a pipe that all workers
read from: a worker takes one for the arrays of a batch (`feed/arena.py`), and the owner returns it to the pipe when
nothing refers to those arrays any more. A buffer that is no longer needed is retired: all processes unmap it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import struct
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from playhead.errors import StoreError
from playhead.store.local import FAILURES

Span = tuple[int, int]  # offset and size, in bytes
Announce = Callable[[int, int | None], None]

NUMBER = struct.Struct("=i")  # a free buffer, in the pipe
GROWTH_BYTES = 1 << 18  # sizes of buffers are multiples of it
_RECENT = 32  # batches: the next ones are expected to need as much
_FAR_LARGER = 2
_MEMFD_BLOCKED = (errno.ENOSYS, errno.EPERM, errno.EACCES)  # as in sandboxes
_MAP_FIXED = 0x10  # the same value on all supported systems


class SharedBuffers:
    """The buffers of a pool. `free` is the write end of the pipe. `announce` sends every worker the number and the
    descriptor of a new buffer, or the number of a retired one and None.

    There are as many buffers as batches are made ahead. Where the user keeps batches, more are made, up to `most`;
    from then on arrays are copied out of their buffer. Laws: a buffer is not written to while anything refers to
    its memory, in this process or in a fork of it; a worker never waits for a buffer while the owner waits for its
    result.
    """

    def __init__(self, num_workers: int, lookahead: int, free: int, announce: Announce) -> None:
        self._free: int | None = free
        self._announce = announce
        self._usual = num_workers * lookahead
        self._lookahead_elsewhere = (num_workers - 1) * lookahead  # buffers that others may hold for later batches
        self.most = 2 * self._usual + 2
        self._numbers = count()
        self._descriptors: dict[int, int] = {}
        self._mappings: dict[int, mmap.mmap] = {}
        self._held: dict[int, weakref.ref[Any]] = {}
        self._retired: deque[int] = deque()  # and not closed yet
        self._needed_lately: deque[int] = deque(maxlen=_RECENT)
        self._used_lately: deque[int] = deque(maxlen=_RECENT)  # bytes of a buffer

    def __len__(self) -> int:
        return len(self._descriptors) - len(self._retired)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close all buffers and the pipe. Arrays that the user holds keep their memory."""
        self._held.clear()
        self._mappings.clear()
        self._retired.clear()
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
        free, self._free = self._free, None
        if free is not None:
            os.close(free)

    def prepare_to_wait(self) -> None:
        """Call before the owner waits: ensures that there is a buffer for the batch it waits for."""
        while self._retired:
            self._forget(self._retired.popleft())
        self._needed_lately.append(self._needed())
        while len(self) < max(self._usual, self._needed()):
            try:
                descriptor = _new_descriptor()
            except OSError as error:
                if len(self) >= self._needed():
                    return
                if not self._held:
                    raise out_of_resources("no shared memory can be made for worker processes", error) from error
                # The memory that the user has held longest stays mapped without its descriptor, which is then free.
                self.most = len(self)
                number = min(self._held, default=-1)
                if self._held.pop(number, None) is not None:  # otherwise it was released meanwhile
                    self._forget(number)
            else:
                self._add(descriptor)

    def views(self, buffer: tuple[int, int], spans: Sequence[Span]) -> list[memoryview]:
        """Spans of a buffer (its number and capacity) filled by a worker; it is free when none is referenced."""
        number, capacity = buffer
        self._used_lately.append(max(offset + size for offset, size in spans))
        try:
            mapping = self._mapped(number, capacity)
        except OSError:  # a mapping takes a descriptor
            with open(self._descriptors[number], "rb", closefd=False) as file:
                copies = [_read(file, *span) for span in spans]
            self._give_back(number)
            return copies
        if self._needed() >= self.most:
            whole = memoryview(mapping)
            copies = [memoryview(bytearray(whole[offset : offset + size])) for offset, size in spans]
            self._give_back(number)
            return copies
        # Arrays keep a reference to the object that provides their buffer. The mapping stays; this stand-in is per use.
        stand_in = (ctypes.c_char * len(mapping)).from_buffer(mapping)
        self._held[number] = weakref.ref(stand_in, partial(_released, weakref.ref(self), number))
        whole = memoryview(stand_in).cast("B")
        return [whole[offset : offset + size] for offset, size in spans]

    def forked(self, *, in_child: bool) -> None:
        """Call after a fork, in both processes: memory in use becomes private to each.

        Writes of one process are not visible to the other, and workers never write there again.
        """
        for number, reference in list(self._held.items()):
            memory = reference()
            if memory is not None:
                _make_private(memory, self._descriptors[number])
            if self._held.pop(number, None) is not None:
                self._retired.append(number)
        if in_child:
            self.close()

    def released(self, number: int) -> None:
        """Called when nothing refers to a buffer's memory any more, by the thread that drops the last reference."""
        if self._held.pop(number, None) is not None:
            self._give_back(number)

    def _needed(self) -> int:
        """The number of buffers needed so that a worker has one, however many the others hold."""
        return self._lookahead_elsewhere + 1 + len(self._held)

    def _mapped(self, number: int, capacity: int) -> mmap.mmap:
        mapping = self._mappings.get(number)
        if mapping is None or len(mapping) < capacity:
            mapping = self._mappings[number] = mmap.mmap(self._descriptors[number], capacity)
        return mapping

    def _add(self, descriptor: int) -> None:
        number = next(self._numbers)
        self._descriptors[number] = descriptor
        self._announce(number, descriptor)
        self._write_free(number)

    def _forget(self, number: int) -> None:
        self._mappings.pop(number, None)
        os.close(self._descriptors.pop(number))
        self._announce(number, None)

    def _give_back(self, number: int) -> None:
        """Return a buffer to the workers, unless recent batches needed fewer or far smaller ones."""
        capacity = len(self._mappings.get(number, b""))
        used = max([0, *self._used_lately])  # building a list is atomic: another thread may append meanwhile
        is_surplus = len(self) > max([self._usual, *self._needed_lately])
        if is_surplus or capacity > _FAR_LARGER * used + GROWTH_BYTES:
            self._retired.append(number)
        else:
            self._write_free(number)

    def _write_free(self, number: int) -> None:
        if self._free is not None:
            with suppress(BrokenPipeError):  # the workers may be gone
                os.write(self._free, NUMBER.pack(number))


def out_of_resources(problem: str, error: OSError) -> StoreError:
    """The error for resources of worker processes that the system refuses."""
    fix = FAILURES.get(error.errno or 0, "use fewer workers, or worker threads")
    return StoreError(problem, found=str(error), fix=fix)


def _released(buffers: weakref.ref[SharedBuffers], number: int, _: object) -> None:
    found = buffers()
    if found is not None:
        found.released(number)


def _read(file: Any, offset: int, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    file.seek(offset)
    file.readinto(data)
    return data


def _make_private(memory: Any, descriptor: int) -> None:
    """Remap a buffer privately at the same address: a page that is written to becomes a copy of this process."""
    mapped_at = ctypes.CDLL(None).mmap
    mapped_at.restype = ctypes.c_void_p
    mapped_at.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    mapped_at(ctypes.addressof(memory), ctypes.sizeof(memory), access, flags, descriptor, 0)


def _new_descriptor() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("playhead", os.MFD_CLOEXEC)
        except OSError as error:
            if error.errno not in _MEMFD_BLOCKED:
                raise
    from _posixshmem import shm_open, shm_unlink  # type: ignore[import-not-found]  # used by multiprocessing.shared_memory

    name = f"/playhead-{secrets.token_hex(8)}"
    descriptor = shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    shm_unlink(name)
    return int(descriptor)
