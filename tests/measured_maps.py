"""Maps whose results are measured. Some write down the rows they saw, wait or die where a test says so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

Sample = dict[str, Any]


def tokens(sample: Sample) -> Sample:
    """`n` tokens and one."""
    return {"tokens": np.zeros(sample["n"] + 1, np.int32), "id": sample["id"]}


def noted(sample: Sample) -> Sample:
    """The same, with every call noted in the file CALLS, a line for each."""
    with Path(os.environ["CALLS"]).open("a") as file:
        file.write(f"{sample['n']}\n")
    return tokens(sample)


def waiting(sample: Sample) -> Sample:
    """The same; at row WAIT_AT it says so in the file WAIT_MARK and waits to be killed."""
    if str(sample["n"]) == os.environ.get("WAIT_AT"):
        Path(os.environ["WAIT_MARK"]).touch()
        time.sleep(600)
    return noted(sample)


def dying(sample: Sample) -> Sample:
    if str(sample["n"]) == os.environ.get("DIE_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return tokens(sample)


def random(sample: Sample, generator: Any) -> Sample:
    if sample["n"] < 0:
        raise ValueError("a bad row")
    return {"tokens": [0] * int(generator.integers(1, 1000))}


def raising(sample: Sample) -> Sample:
    return {"tokens": [0] * (10 // sample["n"])}  # at 0 it divides by zero


def strange(sample: Sample) -> Sample:
    return [{"tokens": [1]}, {"words": [1]}, {"tokens": "abc"}, {"tokens": 3}][sample["n"]]


def wave(sample: Sample) -> Sample:
    return {"audio": np.zeros(sample["n"] * 160 + 1, np.float32)}
