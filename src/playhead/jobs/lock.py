"""One command at a time for each output directory. The system releases the lock of a killed process."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from playhead.errors import PrepareError
from playhead.store import writing_to

_LOCK = ".playhead.lock"  # in a directory: hidden, as it is none of its contents


@contextmanager
def only_one(
    directory: Path,
    doing: str = "prepared",
    expected: str = "one `playhead prepare` at a time for each source",
    *,
    inside: bool = False,
) -> Iterator[None]:
    """Hold the lock of an index or another directory, or raise naming the holder; the lock file is removed.

    It is beside the directory, which may be replaced as a whole; `inside` a directory of the user, who may be allowed
    to write nowhere else. Directories that are made for it are removed if they stay empty.
    """
    path = directory / _LOCK if inside else directory.with_name(f"{directory.name}.lock")
    new = [place for place in path.parents if not place.exists()]
    descriptor = _locked(path, directory, doing, expected)
    try:
        with writing_to(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held: a process that has opened it meanwhile notices that it was removed
        os.close(descriptor)
        with suppress(OSError):
            for place in new:
                place.rmdir()  # unless it is not empty


def _locked(path: Path, directory: Path, doing: str, expected: str) -> int:
    """A descriptor that holds the lock of the file currently at this path."""
    while True:
        with writing_to(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(descriptor)
            raise PrepareError(
                f"{directory}: is being {doing} by {holder}",
                expected=expected,
                fix="wait until it is done; what it finishes need not be done again",
            ) from error
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a file is still the one at its path: the previous holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
