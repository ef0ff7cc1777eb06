"""Results finished by a thread: in order, no more than two ahead, errors in their place, nothing left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import loader_maps
from deliveries import deliver, seen, stream
from playhead import Loader, SampleError
from playhead.feed.finishing import Finishing
from playhead.feed.pool import Inline, Threads
from playhead.feed.processes import Processes, WorkerOptions
from playhead.feed.produce import Blueprint, Produced


def copied(produced: Produced) -> Produced:
    """As pinning does it."""
    assert threading.current_thread().name == "playhead-finishing"
    return Produced({name: value.copy() for name, value in produced.payload.items()}, produced.incidents)


def finishing(recipe: Any, pool: str, **options: Any) -> Loader:
    loader = Loader(recipe)
    blueprint = Blueprint(recipe, **options)
    inner = {
        "inline": lambda: Inline(blueprint),
        "threads": lambda: Threads(blueprint, 2, 2),
        "processes": lambda: Processes(blueprint, WorkerOptions(2), loader._stream.describe),
    }[pool]
    loader._pool = Finishing(inner(), 4, copied)
    return loader


def is_running() -> bool:
    return any(thread.name == "playhead-finishing" for thread in threading.enumerate())


@pytest.mark.parametrize("pool", ["inline", "threads", "processes"])
@pytest.mark.parametrize("kind", ["passes", "pack"])
def test_any_pool_delivers_the_same_through_a_thread_that_finishes(tmp_path: Path, pool: str, kind: str) -> None:
    recipe = stream(tmp_path, kind)
    expected = list(deliver(Loader(recipe), 44))
    with finishing(recipe, pool) as loader:
        assert list(deliver(loader, 40)) == expected[:40]
        assert list(deliver(loader, 4)) == expected[40:]  # after an iteration that was left in the middle
    assert not is_running()


class Counted:
    """A pool that counts what was taken from it."""

    def __init__(self) -> None:
        self.taken = 0

    def results(self, tasks: Iterator[Any]) -> Iterator[Any]:
        for task in tasks:
            self.taken += 1
            yield task, Produced({}, [])

    def close(self) -> None:
        pass


def test_at_most_two_results_are_finished_ahead() -> None:
    pool = Counted()
    results = Finishing(pool, 1, lambda produced: produced).results(iter(count()))
    for number in range(5):
        assert next(results)[0] == number
        deadline = time.monotonic() + 240
        while pool.taken < number + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert pool.taken == number + 3
    results.close()
    assert not is_running()


def test_an_error_comes_where_its_result_would_have(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed")
    expected = []
    with pytest.raises(SampleError):
        expected.extend(seen(batch) for batch in Loader(recipe, map=loader_maps.broken_in_places))
    loader = finishing(recipe, "inline", map=loader_maps.broken_in_places)
    found = []
    with pytest.raises(SampleError, match="no good"):
        found.extend(map(seen, loader))
    assert found == expected
    assert not is_running()
    loader.close()
