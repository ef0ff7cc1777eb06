"""One command at a time for each place it writes. The system releases the lock of a killed process by itself."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playhead.errors import PrepareError
from playhead.store import writing_to


@contextmanager
def only_one(
    directory: Path, doing: str = "prepared", expected: str = "one `playhead prepare` at a time for each source"
) -> Iterator[None]:
    """Hold the lock of an index or another directory, or say who does."""
    path = directory.with_name(f"{directory.name}.lock")
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise PrepareError(
                f"{directory}: is being {doing} by {holder}",
                expected=expected,
                fix="wait until it is done; what it finishes need not be done again",
            ) from error
        with writing_to(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
