"""`check_map`: a map that depends on its sample alone passes, and others are told what is wrong with them."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
import pytest

from playhead.testing import check_map

SAMPLES = [{"id": f"s{i}", "tokens": list(range(1, 4 + i))} for i in range(3)]
SEEN: list[str] = []


def masked(sample: dict[str, Any], generator: Any) -> dict[str, Any]:
    sample["tokens"] = np.where(generator.random(len(sample["tokens"])) < 0.5, 0, sample["tokens"])
    return sample


def draws_from_random(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": random.random()}  # noqa: S311 - what is to be found


def draws_from_numpy(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": np.random.rand()}  # noqa: NPY002 - what is to be found


def counts(sample: dict[str, Any]) -> dict[str, Any]:
    SEEN.append(sample["id"])
    return {**sample, "x": len(SEEN)}


def tells_the_time(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": time.perf_counter_ns()}


def knows_its_process(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": os.getpid()}


def gives_nothing(sample: dict[str, Any]) -> None:
    del sample["id"]


def test_a_map_that_draws_from_the_generator_of_its_sample_passes() -> None:
    check_map(masked, SAMPLES)
    assert SAMPLES[0] == {"id": "s0", "tokens": [1, 2, 3]}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (draws_from_random, "draws from random; a global random generator in the map"),
        (draws_from_numpy, "draws from numpy.random"),
        (counts, r"in another order: of sample 0, x was 1, and is 6\n  usual cause"),
        (tells_the_time, "in another order: of sample 0, x was"),
        (knows_its_process, "run in a worker process: of sample 0, x was"),
        (gives_nothing, "sample 0: the map .* returned None"),
        (lambda sample: sample, "cannot be sent to a worker process"),
    ],
)
def test_a_map_that_depends_on_anything_else_is_told(function: Any, words: str) -> None:
    SEEN.clear()
    with pytest.raises(AssertionError, match=words):
        check_map(function, SAMPLES)
