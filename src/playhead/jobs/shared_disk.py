"""Files that a worker wrote, seen from here: on another machine a worker must write to storage that both share."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

from playhead.errors import PrepareError

_TRIES = 20
_SECONDS_BETWEEN = 0.25


def expect_file(path: Path) -> None:
    """Refuse to go on if a file that a worker has written cannot be seen here.

    Listing its directory makes a network file system look again: it may remember that the file was not there.
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
        expected="storage that every machine of the cluster sees under the same path",
        fix="write to a shared file system (`cache_dir` of a recipe, --out), or leave out --engine ray",
    )
