"""A running loader says where time went: for every batch, in total, and as OpenMetrics text."""

from __future__ import annotations

import copy
import os
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import loader_maps
from playhead import BatchTiming, Loader, PlayheadError, Recipe, openmetrics
from playhead.feed.stats import STAGES, LoaderStats, WorkerStats
from playhead.prepare import prepare
from playhead.store import LocalFiles
from playhead.testing import FaultyFiles
from small_data import recipe_over, write_jsonl

LATENCY_SECONDS = 0.01
SLOW_SECONDS = 0.25
POOLS: dict[str, dict[str, Any]] = {
    "inline": {},
    "threads": {"workers": 2, "worker_kind": "thread"},
    "processes": {"workers": 2},
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("rows")
    for shard in range(3):
        rows = [{"n": 5, "id": f"{shard}-{i}", "tokens": [i] * 5} for i in range(20)]
        write_jsonl(folder / f"{shard}.jsonl", rows)
    found = recipe_over(folder)
    prepare(found)
    return found


def close_to(seconds: float) -> Any:
    """Times are differences of clock readings, which are rounded where the clock has run for long."""
    return pytest.approx(seconds, abs=1e-6)


def watched(loader: Loader, num: int) -> list[tuple[BatchTiming, float, float]]:
    found: list[tuple[BatchTiming, float, float]] = []
    loader.watch(lambda timing, asked, given: found.append((timing, asked, given)))
    for _ in islice(loader, num):
        pass
    return found


@pytest.mark.parametrize("pool", POOLS)
def test_every_batch_is_timed_in_order_by_the_worker_that_made_it(recipe: Recipe, pool: str) -> None:
    with Loader(recipe, rank=0, world_size=1, **POOLS[pool]) as loader:
        found = watched(loader, 12)
    assert [timing.step for timing, _, _ in found] == [*range(12)]
    assert {timing.worker for timing, _, _ in found} <= {0, 1}
    assert (os.getpid() in {timing.process for timing, _, _ in found}) == (pool != "processes")
    for timing, asked, given in found:
        assert timing.began < timing.ended <= given
        assert asked <= given
        assert timing.num_bytes > 0
        assert timing.num_requests > 0
        assert timing.slowest_path is not None
        assert timing.slowest_path.endswith(".jsonl")
        assert min(getattr(timing, stage) for stage in STAGES) >= 0


@pytest.mark.parametrize("pool", POOLS)
def test_the_stages_of_a_batch_without_look_ahead_add_up_to_its_time(recipe: Recipe, pool: str) -> None:
    with Loader(recipe, rank=0, world_size=1, map=loader_maps.augmented, **POOLS[pool]) as loader:
        found = watched(loader, 6)
    for timing, _, _ in found:
        assert sum(getattr(timing, stage) for stage in STAGES) == close_to(timing.ended - timing.began)
        assert timing.map > 0


def test_storage_time_is_that_of_the_storage_and_concurrent_requests_count_once(recipe: Recipe) -> None:
    files = FaultyFiles(LocalFiles(), LATENCY_SECONDS)
    with Loader(recipe, rank=0, world_size=1, files=files) as loader:
        found = watched(loader, 20)
    for timing, _, _ in found:
        assert LATENCY_SECONDS <= timing.open + timing.read <= timing.ended - timing.began
        assert timing.waited == close_to(timing.open + timing.read)
        assert timing.slowest_seconds >= LATENCY_SECONDS
    assert found[0][0].open > 0
    assert found[-1][0].read > 0
    assert found[-1][0].open == 0


def test_the_statistics_add_up_what_was_watched(recipe: Recipe) -> None:
    with Loader(recipe, rank=0, world_size=1, workers=2) as loader:
        found = watched(loader, 300)
        stats = loader.stats()
    assert (stats.batches, stats.steps, stats.samples) == (300, 300, 600)
    assert stats.wait_seconds == close_to(sum(given - asked for _, asked, given in found))
    gaps = [found[i + 1][1] - found[i][2] for i in range(299)]
    assert stats.consumer_seconds == close_to(sum(gaps))
    for name in (*STAGES, "waited", "ahead", "num_bytes", "num_requests"):
        total = sum(getattr(timing, name) for timing, _, _ in found)
        assert getattr(stats.total, name) == close_to(total)
        assert sum(getattr(worker, name) for worker in stats.workers) == close_to(total)
    assert [worker.worker for worker in stats.workers] == [0, 1]
    assert [worker.batches for worker in stats.workers] == [150, 150]
    assert len({worker.process for worker in stats.workers} | {os.getpid()}) == 3
    assert all(worker.resident_bytes > 1 << 20 for worker in stats.workers)
    assert stats.resident_bytes > 1 << 20


def test_workers_that_are_started_again_add_to_what_those_before_them_counted(recipe: Recipe) -> None:
    with Loader(recipe, rank=0, world_size=1, workers=2) as loader:
        processes = set()
        for _ in range(2):
            for _ in islice(loader, 20):
                pass
            stats = loader.stats()
            processes |= {worker.process for worker in stats.workers}
            loader.close()
    assert len(processes) == 4
    assert [(worker.worker, worker.batches) for worker in stats.workers] == [(0, 20), (1, 20)]


def test_another_thread_may_ask_for_statistics_while_batches_are_delivered(recipe: Recipe) -> None:
    """Asked for all the time: no batch is counted twice or lost."""
    counted: list[int] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            counted.append(loader.stats().batches)

    with Loader(recipe, rank=0, world_size=1) as loader:
        thread = threading.Thread(target=ask)
        thread.start()
        num_batches = 0
        for _ in loader:
            num_batches += 1
            if num_batches >= 2000 and len(counted) > 10:
                break
        ended.set()
        thread.join()
        assert loader.stats().batches == num_batches
    assert counted == sorted(counted)


def test_a_wait_far_above_the_median_is_pinned_to_its_stage_and_file(recipe: Recipe) -> None:
    files = FaultyFiles(LocalFiles(), fail=SlowAt(40))
    with Loader(recipe, rank=0, world_size=1, files=files) as loader:
        for _ in islice(loader, 60):
            pass
        slow = [wait for wait in loader.stats().slow if wait.seconds >= SLOW_SECONDS and wait.stage == "read"]
    assert slow  # beside waits that others on this machine have caused
    assert slow[0].path is not None
    assert slow[0].path.endswith(".jsonl")
    assert slow[0].worker == 0


def test_a_fork_that_makes_batches_is_timed_under_its_own_process(recipe: Recipe) -> None:
    loader = Loader(recipe, rank=0, world_size=1)
    watched(loader, 1)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        found = 0
        try:
            found = watched(loader, 1)[0][0].process
        finally:
            os.write(writer, str(found).encode())
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 20)) == child
    os.close(reader)
    os.close(writer)


class SlowAt:
    """One request takes very long."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, number: int, method: str, path: str) -> None:  # noqa: ARG002 - a `Fail`
        if number == self._number:
            time.sleep(SLOW_SECONDS)


def test_a_copy_of_a_loader_counts_anew_and_an_unwatched_loader_calls_nobody(recipe: Recipe) -> None:
    loader = Loader(recipe, rank=0, world_size=1)
    found = watched(loader, 3)
    loader.watch(None)
    for _ in islice(loader, 3):
        pass
    assert len(found) == 3
    assert loader.stats().batches == 6
    assert copy.copy(loader).stats().batches == 0


def test_openmetrics_text_is_read_by_prometheus_with_the_values_of_the_statistics(recipe: Recipe) -> None:
    with Loader(recipe, rank=0, world_size=1, workers=2) as loader:
        for _ in islice(loader, 10):
            pass
        stats = loader.stats()
    text = openmetrics(stats, rank=3, job='of "quotes"\\')
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.samples for family in families.values())
    (batches,) = families["playhead_batches"].samples
    assert (batches.name, batches.value) == ("playhead_batches_total", 10)
    assert batches.labels == {"rank": "3", "job": 'of "quotes"\\'}
    assert families["playhead_wait_seconds"].unit == "seconds"
    stages = {(s.labels["worker"], s.labels["stage"]): s.value for s in families["playhead_stage_seconds"].samples}
    assert stages["1", "decode"] == close_to(stats.workers[1].decode)
    assert set(stages) == {(worker, stage) for worker in "01" for stage in STAGES}


def test_statistics_of_nothing_are_valid_openmetrics() -> None:
    families = [*text_string_to_metric_families(openmetrics(LoaderStats(workers=(WorkerStats(worker=0),))))]
    assert {family.type for family in families} == {"counter", "gauge"}


def test_a_loader_that_was_not_iterated_has_counted_nothing(recipe: Recipe, tmp_path: Path) -> None:
    stats = Loader(recipe, rank=0, world_size=1).stats()
    assert (stats.batches, stats.wait_seconds, stats.workers, stats.slow) == (0, 0.0, (), ())


def test_the_memory_of_threads_is_counted_once(recipe: Recipe) -> None:
    with Loader(recipe, **POOLS["threads"]) as loader:
        watched(loader, 8)
        stats = loader.stats()
    assert stats.total.resident_bytes == stats.workers[-1].resident_bytes
    assert stats.total.num_requests == sum(worker.num_requests for worker in stats.workers)


@pytest.mark.parametrize("name", ["bad-label", "worker", "__own", "1st", ""])
def test_labels_that_prometheus_would_refuse_are_refused(name: str) -> None:
    with pytest.raises(PlayheadError, match="label"):
        openmetrics(LoaderStats(), **{name: "x"})
