from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_worlds import until, world
from playhead.inspect.bench.page import page_of
from playhead.inspect.bench.process_use import num_cores
from playhead.inspect.bench.recording import BenchLimits
from playhead.inspect.bench.report import BenchJob
from playhead.inspect.bench.sweep import Setting, Sweep, SweepPoint, enough, sweep
from playhead.inspect.bench.text import BenchResults
from playhead.inspect.bench.values import LoaderSettings
from playhead.store import LocalFiles
from playhead.testing import FaultyFiles

THREADS = LoaderSettings(worker_kind="thread")


def points(setting: Setting, rates: dict[int, float]) -> list[SweepPoint]:
    return [SweepPoint(setting, value, rate, 0.5, "user map") for value, rate in rates.items()]


@pytest.mark.parametrize(
    ("rates", "value"),
    [({1: 10, 2: 20, 4: 40, 8: 41}, 4), ({1: 10, 2: 9, 4: 8}, 1), ({1: 10, 2: 20, 4: 30, 8: 60}, 8)],
)
def test_the_smallest_value_within_five_percent_of_the_best_is_enough(rates: dict[int, float], value: int) -> None:
    assert enough(points("workers", rates)) == value


def test_workers_that_wait_are_worth_adding_and_every_run_goes_on_where_the_last_ended(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path), map="bench_maps:slow")
    job = BenchJob(recipe, BenchLimits(seconds=0.3))
    seen: list[str] = []

    def swept() -> Sweep:
        seen.clear()
        return sweep(job, THREADS, lambda _title, done, total: seen.append(f"{done}/{total}"))

    found = until(swept, lambda found: found.best.workers > 1)
    tried = [point.value for point in found.of("workers")]
    assert tried == [value for value in (1, 2, 4, 8, 16) if value <= max(2, 2 * int(num_cores()))]
    assert found.best.workers == enough([*found.of("workers")]) > 1
    assert [point.value for point in found.of("lookahead")] == [1, 2, 4, 8]
    assert found.of("threads") == ()
    assert found.best.worker_kind == "thread"
    assert seen == [f"{i}/{len(found.points)}" for i in range(len(found.points))]
    assert "user map" in {point.limit for point in found.of("workers")}


def test_threads_are_tried_where_requests_cost(tmp_path: Path) -> None:
    slow = FaultyFiles(LocalFiles(), latency_seconds=0.01)
    found = sweep(BenchJob(world(tmp_path), BenchLimits(seconds=0.2), files=slow), THREADS)
    assert [point.value for point in found.of("threads")] == [0, 1, 2, 4]
    assert found.best.threads is not None


def test_an_interrupted_sweep_gives_what_it_has(tmp_path: Path) -> None:
    def interrupt(_title: str, done: int, _total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    found = sweep(BenchJob(world(tmp_path), BenchLimits(seconds=0.1)), THREADS, interrupt)
    assert (len(found.points), found.stopped) == (2, "Ctrl-C")
    assert found.best.workers == enough([*found.of("workers")])


def test_a_sweep_that_was_stopped_before_its_first_run_recommends_nothing_new(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    found = sweep(BenchJob(world(tmp_path), BenchLimits(seconds=0.1)), THREADS, interrupt)
    assert (found.points, found.best) == ((), THREADS)
    page = page_of(BenchResults(None, sweep=found), "recipe.yaml")
    assert "No run was finished (stopped by Ctrl-C)" in page
    assert "Use " not in page
