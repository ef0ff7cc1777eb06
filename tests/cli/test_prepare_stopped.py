"""`playhead prepare` interrupted: one message, whenever it comes, and nothing left but what serves to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from small_data import write_jsonl

RECIPE = """
sources: [{name: a, path: "*.jsonl", length: {function: "slow:length"}}]
batching: {type: fixed, size: 2}
"""
SLOW = """
import time
def length(sample):
    time.sleep(0.02)
    return 1
"""


MOMENTS = [(0.3, "SIGINT"), (0.3, "SIGTERM"), (1.0, "SIGTERM"), (1.6, "SIGINT"), (2.2, "SIGTERM"), (3.0, "SIGINT")]


@pytest.mark.parametrize(("seconds", "name"), MOMENTS)
def test_a_signal_ends_it_with_one_message(tmp_path: Path, seconds: float, name: str) -> None:
    number = signal.Signals[name]
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    rows = [{"x": "y" * 1_000}] * 9_000
    for i in range(4):
        write_jsonl(tmp_path / f"{i}.jsonl", rows)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-m", "playhead", "prepare", "recipe.yaml", "--workers", "8"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lock = tmp_path / ".playhead"
    while not lock.exists():
        time.sleep(0.01)
    time.sleep(seconds)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    output, errors = process.communicate(timeout=240)
    assert (output, errors) == ("", f"PrepareError: stopped by {number.name}\n  to fix    run it again to resume\n")
    assert process.returncode == 128 + number
    while living(process.pid):
        time.sleep(0.01)
    assert list(tmp_path.glob(".playhead/*.lock")) == []


def living(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found
