"""A length function that a file named `hold` in the working directory stops once, to be killed there."""

from __future__ import annotations

import os
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
