"""Maps and collate functions that make a pipeline slow in one place, for the tests of the bench."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

Sample = dict[str, Any]


def slow(sample: Sample) -> Sample:
    time.sleep(0.005)
    return sample


def slow_at_times(sample: Sample) -> Sample:
    """One sample in 32 takes hundreds of times as long as the others."""
    time.sleep(0.3 if sample["id"] % 32 == 7 else 0.0005)
    return sample


def slow_collate(samples: list[Sample]) -> Sample:
    time.sleep(0.02)
    return {"n": np.array([sample["n"] for sample in samples])}
