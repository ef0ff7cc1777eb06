"""Why a directory cannot be the directory of a shard cache, as errors that say what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playhead.errors import RecipeError, StoreError
from playhead.store.local import FAILURES

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_DIRECTORY = (errno.EEXIST, errno.ENOTDIR)
_NOT_WRITABLE = "name a directory that you may write, or change the permissions of this one or its mount"
_REMEDIES = FAILURES | dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NOT_WRITABLE)


@contextmanager
def naming_the_directory(path: str | Path) -> Iterator[None]:
    """Convert an OSError to an error that names the directory: a StoreError where only space is missing."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise StoreError(
                f"shard_cache.dir: {path} cannot be written",
                found=error.strerror,
                fix="free some space, or name a directory on a larger disk",
            ) from error
        raise _refusal(str(path), error) from error


def _refusal(path: str, error: OSError) -> RecipeError:
    if error.errno in _NO_DIRECTORY:
        return not_usable(
            path,
            f"{error.filename or path} is not a directory",
            "a directory, or a path where nothing is yet",
            "name another directory, or move away what is there",
        )
    if error.errno == errno.ENOENT:
        return not_usable(
            path,
            f"{error.filename or path} is gone: the cache was removed, or a part of it",
            "a cache that nobody removes while it is used",
            "end the loaders that use it and remove what is left of it; the next loader makes it anew",
        )
    return not_usable(
        path,
        error.strerror or str(error),
        "a local directory that you may write",
        _REMEDIES.get(error.errno or 0, "check its disk, or name a directory on another one"),
    )


def not_usable(path: str, found: str, expected: str, fix: str) -> RecipeError:
    return RecipeError(f"shard_cache.dir: {path} cannot be used", found=found, expected=expected, fix=fix)
