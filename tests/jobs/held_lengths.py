"""Length functions that a file in the working directory stops once, or kills once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def held(row: dict[str, Any]) -> int:
    """At row 23, if there is a file `hold`, remove it, tell the process in a file `pid`, and wait to be killed."""
    hold = Path("hold")
    if row["n"] == 23 and hold.exists():
        hold.unlink()
        Path("pid").write_text(str(os.getpid()))
        while True:
            time.sleep(0.01)
    return int(row["n"])


def dying(row: dict[str, Any]) -> int:
    """If there is a file `die`, remove it and die, as in a system short of memory."""
    if Path("die").exists():
        Path("die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(row["n"])
