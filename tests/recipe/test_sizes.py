"""Absurd sizes: refused by the recipe check with the bound, the place and the remedy; sizes at the bound pass."""

from __future__ import annotations

from typing import Any

import pytest

from playhead import Recipe
from playhead.recipe import check_sizes as bounds
from recipe.recipes import group, recipe, refusal, source

BILLION = 10**9


def batched(kind: str, lanes: int = 1, unit: str = "tokens", **fields: Any) -> dict[str, Any]:
    length = {"field": "n", "unit": unit}
    return recipe(source(length=length, output_length="m"), batching={"type": kind, **fields}, lanes=lanes)


def evaluated(size: int = 4, **fields: Any) -> dict[str, Any]:
    batching = {"type": "fixed", "size": size}
    return recipe(evaluation={"dev": {"sources": [source("b")], "batching": batching, **fields}})


def zipped(lanes: int) -> dict[str, Any]:
    batching = {"type": "fixed", "size": 1}
    groups = [group("x", batching=batching, lanes=lanes), group("y", batching=batching, lanes=1)]
    return {"sources": groups, "fuse": "zip", "lanes": 2}


SIZES = {
    "lanes": lambda n: recipe(lanes=n, batching={"type": "fixed", "size": 1}),
    "sources[0].lanes": zipped,
    "evaluation.dev.lanes": lambda n: evaluated(lanes=n),
    "evaluation.dev.batching.size": lambda n: evaluated(size=n),
    "window_size": lambda n: recipe(window_size=n, batching={"type": "fixed", "size": 1}),
    "parts": lambda n: recipe(lanes=2, parts=n),
    "epochs": lambda n: recipe(epochs=n),
    "sources[0].shuffle_group": lambda n: recipe(source(shuffle="shards", shuffle_group=n)),
    "batching.size": lambda n: batched("fixed", size=n),
    "batching.size[1]": lambda n: batched("bucket", edges=[1, 2], size=[1, n]),
    "batching.num": lambda n: batched("bucket", num=n, size=1),
    "batching.max_length": lambda n: batched("pack", max_length=n),
    "batching.budget": lambda n: batched("budget", budget=n),
    "batching.quadratic": lambda n: batched("budget", budget=9, quadratic=n),
    "batching.edges[1]": lambda n: batched("bucket", edges=[1, n], size=1),
    "batching.edges[1][1]": lambda n: batched("bucket", edges=[[1, 1], [2, n]], size=1),
    "pad_to": lambda n: recipe(pad_to=n),
}  # fmt: skip
LARGEST = {
    "lanes": bounds.MOST_LANES,
    "evaluation.dev.lanes": bounds.MOST_LANES,
    "evaluation.dev.batching.size": bounds.MOST_SAMPLES,
    "window_size": bounds.LARGEST_WINDOW,
    "epochs": bounds.MOST_EPOCHS,
    "sources[0].shuffle_group": bounds.MOST_SHARDS,
    "batching.size": bounds.MOST_SAMPLES,
    "batching.num": bounds.MOST_BUCKETS,
    "batching.max_length": bounds.LARGEST_PACK,
    "batching.budget": bounds.LARGEST_BATCH,
    "pad_to": bounds.LARGEST_BATCH,
}  # fmt: skip


@pytest.mark.parametrize("size", [2**33, 2**40, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("path", SIZES)
def test_an_absurd_size_is_refused_with_the_bound_the_path_and_a_remedy(path: str, size: int) -> None:
    error = refusal(SIZES[path](size))
    assert error.problem.startswith(f"{path}: ")
    assert error.expected.startswith("at most ")
    assert error.fix


@pytest.mark.parametrize("path", LARGEST)
def test_a_size_at_the_bound_passes_and_one_more_does_not(path: str) -> None:
    Recipe.parse(SIZES[path](LARGEST[path]), "/data")
    error = refusal(SIZES[path](LARGEST[path] + 1))
    assert error.expected == f"at most {LARGEST[path]:,}"


@pytest.mark.parametrize("length", [1e300, 1e308, 5_000_000])
def test_lengths_in_seconds_are_bounded_in_seconds(length: float) -> None:
    error = refusal(batched("pack", unit="seconds", max_length=length))
    assert (error.problem, error.expected) == ("batching.max_length: is too large", "at most 16,777.22 s")
    Recipe.parse(batched("pack", unit="seconds", max_length=16_000), "/data")


def test_a_step_is_bounded_as_a_whole() -> None:
    error = refusal(batched("fixed", lanes=1024, size=4097))
    assert error.problem == "batching.size: a step of 1,024 lanes would have 4,195,328 samples"
    assert error.expected == "at most 4,096"
    Recipe.parse(batched("fixed", lanes=1024, size=4096), "/data")


def test_a_padded_micro_batch_is_bounded_as_a_whole() -> None:
    error = refusal({**batched("fixed", size=1024), "pad_to": 2**23})
    assert error.problem.startswith("pad_to: 1,024 samples (batching.size)")
    assert error.expected == "at most 4,194,304"


@pytest.mark.parametrize("num", [[33, 32], [2**31, 2**31]])
def test_buckets_of_two_lengths_are_counted_together(num: list[int]) -> None:
    assert refusal(batched("bucket", num=num, size=1)).expected == "at most 1,024"
    many = batched("bucket", edges=list(range(1, 1026)), size=1)
    assert refusal(many).problem == "batching.edges: too many buckets"


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**64, 10**40])
def test_a_seed_that_is_negative_or_too_large_is_refused(seed: int) -> None:
    error = refusal(recipe(seed=seed))
    assert error.problem == "seed: must be a whole number of 64 bits that is not negative"
    assert (error.found, error.expected) == (str(seed), "0 to 18446744073709551615")
    assert error.fix


@pytest.mark.parametrize("rate", [1e300, 0.1, 1e-300])
def test_a_rate_that_no_sequence_has_is_refused(rate: float) -> None:
    error = refusal(recipe(sequence_rate=rate))
    assert (error.problem, error.expected) == ("sequence_rate: out of range", "1 to 1,000,000,000")
