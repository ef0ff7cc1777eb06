"""Files and directories written atomically: a temporary one beside it, fsync, rename.

Nothing is written through a memory map: a full disk would end the process instead of raising.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from playhead.errors import PrepareError
from playhead.store.local import FAILURES

_REMEDIES = FAILURES | {
    errno.ENOSPC: "free some space, or write to a larger disk (`cache_dir`, `--out`, `--to`); what is done is kept",
    errno.EDQUOT: "free some of your quota, or write elsewhere (`cache_dir`, `--out`, `--to`); what is done is kept",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or write elsewhere (`cache_dir`, `--out`, `--to`)",
    errno.EEXIST: "a file is where a directory should be: move it away, or write elsewhere",
    errno.ENOTDIR: "a file is where a directory should be: move it away, or write elsewhere",
    errno.EROFS: "write (`cache_dir`, `--out`, `--to`, for sidecars `indexes_root`) to a place that can be written",
    errno.EACCES: "write (`cache_dir`, `--out`, `--to`, for sidecars `indexes_root`) to a place that you may write",
    errno.EPERM: "write (`cache_dir`, `--out`, `--to`, for sidecars `indexes_root`) to a place that you may write",
}


@contextmanager
def writing_to(path: str | Path) -> Iterator[None]:
    """Convert an OSError from writing to an error that names the path and the fix."""
    try:
        yield
    except OSError as error:
        raise PrepareError(
            f"{path}: cannot be written",
            found=error.strerror or str(error),
            fix=_REMEDIES.get(error.errno or 0, "check the disk and the permissions, then run it again"),
        ) from error


@contextmanager
def replacing(path: str | Path, buffer_bytes: int = -1) -> Iterator[BinaryIO]:
    """A file to write, which replaces `path` when the block ends and is removed when it fails."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with writing_to(target):
            with temporary.open("wb", buffer_bytes) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def fresh_directory(path: Path) -> Path:
    """An empty directory, whatever was there before."""
    with writing_to(path):
        if path.exists():
            shutil.rmtree(path)
        path.mkdir(parents=True)
    return path


def swap_directory(new: Path, target: Path) -> None:
    """Replace `target` by `new`.

    Law: a kill at any moment leaves the old, the new, or (with `target` missing) something to be prepared
    again; never a mixture.
    """
    with writing_to(target):
        for directory, _, _ in os.walk(new):
            sync_directory(Path(directory))
        retired = target.with_name(f"{target.name}.old")
        shutil.rmtree(retired, ignore_errors=True)
        if target.exists():
            target.rename(retired)
        new.rename(target)
        sync_directory(target.parent)
        shutil.rmtree(retired, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
