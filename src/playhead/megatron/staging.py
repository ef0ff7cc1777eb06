"""Several files that appear together: written under other names, forced to the disk, and only then renamed, in order.

Law: whatever ends the process or the machine, a file under its final name is complete. A separate thread flushes data
to the disk while the rest is made, so that the final sync is short.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from playhead.store import sync_directory, writing_to

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}-\w+-(train|valid|test)-\w+\.(npy|txt|json)\.\d+\.tmp")
_ABANDONED_SECONDS = 3600
EARLY_BYTES = 64 << 20


class Sink(Protocol):
    """An output for bytes."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class _Staged:
    """A file under a temporary name, locked while it is open. Its data is flushed to the disk periodically."""

    def __init__(self, target: Path, syncing: ThreadPoolExecutor) -> None:
        self.target = target
        self.temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        self._file = _open_locked(self.temporary)
        self._syncing = syncing
        self._early: Future[None] | None = None
        self._waiting = 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._waiting += memoryview(data).nbytes
        if self._waiting >= EARLY_BYTES and (self._early is None or self._early.done()):
            self._settle()
            self._waiting = 0
            self._early = self._syncing.submit(os.fdatasync, self._file.fileno())

    def finish(self) -> Future[None]:
        """Start flushing all data to the disk."""
        self._file.flush()
        self._settle()
        return self._syncing.submit(os.fsync, self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):
            self._settle()
        with suppress(OSError):
            self._file.close()

    def _settle(self) -> None:
        """Wait for earlier flushes. The system reports a failed write only once, so errors must be collected here."""
        if self._early is not None:
            self._early.result()


@contextmanager
def staged(directory: Path, retired: Sequence[Path]) -> Iterator[Callable[[Path], Sink]]:
    """Files to fill; `retired` ones are removed just before the new ones get their final names.

    Law: if the block fails, or the disk refuses a byte, no file has changed and no temporary one is left.
    """
    opened: list[_Staged] = []
    with writing_to(directory), ThreadPoolExecutor(1) as syncing:

        def create(target: Path) -> Sink:
            opened.append(_Staged(target, syncing))
            return opened[-1]

        try:
            yield create
            for synced in [one.finish() for one in opened]:
                synced.result()
            _rename(directory, opened, retired)
        finally:
            for one in opened:
                one.close()
                with suppress(OSError):
                    one.temporary.unlink(missing_ok=True)


def _rename(directory: Path, opened: Sequence[_Staged], retired: Sequence[Path]) -> None:
    """Law: a retired file, or a new one in its place, is never seen beside a file of the other generation.

    A disk may reorder renames, so each step is synced separately; without files of an older generation the order does
    not matter.
    """
    older = any(path.exists() for path in [*retired, *(one.target for one in opened)])
    steps: list[list[_Staged]] = [[one for one in opened if one.target not in retired]]
    steps.append([one for one in opened if one.target in retired])
    for path in retired:
        path.unlink(missing_ok=True)
    for step in steps:
        if older:
            sync_directory(directory)
        for one in step:
            one.temporary.replace(one.target)
    sync_directory(directory)


def _open_locked(path: Path) -> BinaryIO:
    """A new file with a lock, which the system releases when the process ends."""
    while True:
        file = path.open("wb")
        with suppress(OSError):  # a file system without locks: stale files are recognized by their age
            fcntl.flock(file, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # removed by another process before it was locked


def sweep(directory: Path) -> None:
    """Remove the temporary files of runs that were killed. Law: files of a running process are kept."""
    for path in directory.glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            with suppress(OSError), path.open("r+b") as file:
                if _is_abandoned(file):
                    path.unlink()


def _is_abandoned(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here: a file modified within the last hour may belong to another run
        return time.time() - os.fstat(file.fileno()).st_mtime > _ABANDONED_SECONDS
    return True
