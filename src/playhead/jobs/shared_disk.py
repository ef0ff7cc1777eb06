"""Files written by workers: a worker on another machine must write to storage shared with this one."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

from playhead.errors import PrepareError

_TRIES = 20
_SECONDS_BETWEEN = 0.25


def expect_file(path: Path) -> None:
    """Raise an error if a file written by a worker is not visible here.

    Listing its directory refreshes a network file system, which may have cached that the file was missing.
    """
    for _ in range(_TRIES):
        if path.is_file():
            return
        with suppress(OSError):
            list(path.parent.iterdir())
        if path.is_file():
            return
        time.sleep(_SECONDS_BETWEEN)
    raise PrepareError(
        f"{path}: was written by a worker, and is not on {socket.gethostname()}",
        expected="storage that every machine of the cluster mounts under the same path",
        fix="write to a shared file system (`cache_dir` of a recipe, --out), or leave out --engine ray",
    )
