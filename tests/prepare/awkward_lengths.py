"""Length functions that wait or die at the row a test names in the environment, and are ordinary otherwise."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def waiting(row: dict[str, Any]) -> int:
    """At row WAIT_AT say so in the file WAIT_MARK, then wait to be killed."""
    if str(row["n"]) == os.environ.get("WAIT_AT"):
        Path(os.environ["WAIT_MARK"]).touch()
        time.sleep(600)
    return int(row["n"])


def dying(row: dict[str, Any]) -> int:
    """At row DIE_AT the process is killed, as a system short of memory would."""
    if str(row["n"]) == os.environ.get("DIE_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return int(row["n"])
