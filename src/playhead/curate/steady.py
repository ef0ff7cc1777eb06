"""A long loop that writes much, without the pauses that Python and the system would make in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection: a row leaves no cycles behind, and looking for them takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def start_writing(file: BinaryIO, num_bytes: int) -> None:
    """Let the system begin to write the last bytes to disk, so that little is left to wait for in fsync."""
    if hasattr(os, "posix_fadvise"):
        file.flush()
        os.posix_fadvise(file.fileno(), file.tell() - num_bytes, num_bytes, os.POSIX_FADV_DONTNEED)
