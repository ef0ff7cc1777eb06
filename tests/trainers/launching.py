"""Trainings as programs of their own, started as users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LAUNCHERS = {
    "python": [sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
}
TIMEOUT_SECONDS = 240


def launch(job: Path, launcher: str, **arguments: Any) -> int:
    """Run a job to its end, which is a good one unless it is told to kill itself; the exit code."""
    command = [*LAUNCHERS[launcher], str(job), json.dumps(arguments, default=str)]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0 or "kill_after" in arguments, output
    return process.returncode
