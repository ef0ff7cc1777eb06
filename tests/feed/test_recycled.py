"""Memory that is used again: never while anything refers to it, and no more of it than is in use at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deliveries import npy, seen
from playhead import Loader, Recipe
from playhead.feed.recycled import SMALLEST_BYTES, Recycled
from playhead.prepare import prepare
from small_data import write_tar


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_the_last_part_of_its_array_is_gone() -> None:
    memory = Recycled()
    array = memory.empty((4, SMALLEST_BYTES), np.uint8)
    array[:] = 7
    part = array[3:, 10:20][0]
    at = address(array)
    del array
    other = memory.empty((4, SMALLEST_BYTES), np.uint8)
    other[:] = 9
    assert address(other) != at
    assert part.tolist() == [7] * 10
    del part
    assert address(memory.empty((SMALLEST_BYTES, 4), np.int8)) == at


def test_small_arrays_and_arrays_of_objects_are_those_of_numpy() -> None:
    memory = Recycled()
    assert memory.empty((10,), np.int64).base is None
    objects = memory.empty((SMALLEST_BYTES,), object)
    assert objects.base is None
    assert objects[0] is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=20))
def test_arrays_that_are_held_keep_their_numbers_whatever_is_let_go_of(steps: list[tuple[int, bool]]) -> None:
    memory = Recycled()
    held: list[tuple[int, Any]] = []
    for number, (size, keep) in enumerate(steps):
        array = memory.empty((size, SMALLEST_BYTES // 8), np.float64)
        array[:] = number
        held.append((number, array))
        if not keep:
            held.pop(0)
        assert all((array == value).all() for value, array in held)


def test_threads_share_it_and_none_writes_where_another_does() -> None:
    memory = Recycled()

    def fill(value: int) -> bool:
        for _ in range(50):
            array = memory.empty((SMALLEST_BYTES,), np.uint8)
            array[:] = value
            if not (array == value).all():
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(fill, range(8)))


@pytest.mark.parametrize("keep", [False, True])
def test_threads_of_a_loader_use_memory_again_and_overwrite_nothing_that_is_kept(tmp_path: Path, keep: bool) -> None:
    write_tar(tmp_path / "a.tar", [(f"{i:03}.npy", npy(np.arange(60_000, dtype=np.float32) + i)) for i in range(24)])
    recipe = Recipe.parse(
        {"sources": [{"name": "a", "path": "a.tar"}], "batching": {"type": "fixed", "size": 3}, "seed": 3}, tmp_path
    )
    prepare(recipe, workers=1)
    expected = [seen(batch) for batch in islice(Loader(recipe), 20)]
    addresses = set()
    with Loader(recipe, workers=2, worker_kind="thread") as loader:
        if keep:
            kept = list(islice(loader, 20))
            assert [seen(batch) for batch in kept] == expected
        else:
            for number, batch in enumerate(islice(loader, 20)):
                assert seen(batch) == expected[number]
                addresses.add(address(batch["npy"]))
            assert len(addresses) <= 4 + 2  # made ahead, and those that the loop holds
