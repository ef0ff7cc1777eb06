from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from bench_worlds import until, world
from playhead.inspect.bench.page import page_of
from playhead.inspect.bench.process_use import num_cores
from playhead.inspect.bench.recording import BenchLimits
from playhead.inspect.bench.report import BenchJob, bench
from playhead.inspect.bench.storage_probe import NO_PROBE
from playhead.inspect.bench.sweep import Sweep, SweepPoint, enough, sweep
from playhead.inspect.bench.text import BenchResults, plain_results, sweep_advice
from playhead.inspect.bench.values import Limit, LoaderSettings, Setting
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
    least = [value for value in (0, 1, 2, 4, 8, 16) if value <= max(2, 2 * int(num_cores()))]
    assert tried[: len(least)] == least
    assert tried[len(least) :] == [value for value in (4, 8, 16, 32) if least[-1] < value <= tried[-1]]
    assert found.best.workers > 1
    assert [point.value for point in found.of("lookahead")][:4] == [1, 2, 4, 8]
    assert found.of("threads") == ()
    assert found.best.worker_kind == "thread"
    assert [each.partition("/")[0] for each in seen] == [f"{i}" for i in range(len(found.points))]
    assert seen[-1] == f"{len(found.points) - 1}/{len(found.points)}"
    assert "user map" in {point.limit for point in found.of("workers")}


def test_threads_are_tried_where_requests_cost(tmp_path: Path) -> None:
    slow = FaultyFiles(LocalFiles(), latency_seconds=0.01)
    found = sweep(BenchJob(world(tmp_path), BenchLimits(seconds=0.2), files=slow), THREADS)
    assert [point.value for point in found.of("threads")][:4] == [0, 1, 2, 4]
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
    assert "No run was finished (stopped by Ctrl-C)." in page
    assert "Use " not in page


RATES = {0: 20.0, 1: 20.0, 2: 40.0, 4: 80.0, 8: 160.0, 16: 162.0}


def scripted(rates: Mapping[int, float], limit: Limit = "user map") -> Callable[..., object]:
    """A bench that finds these rates for so many workers, and the same for any look-ahead."""

    def run(_job: BenchJob, settings: LoaderSettings, **_: object) -> object:
        figures = SimpleNamespace(
            num_batches=rates[settings.workers], seconds=1.0, wait_share=0.5, probe=NO_PROBE, has_ended=False
        )
        return SimpleNamespace(
            figures=figures, bottleneck=SimpleNamespace(limit=limit), state={"step": 1}, stopped=None
        )

    return run


def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., object]) -> Sweep:
    monkeypatch.setattr("playhead.inspect.bench.sweep.bench", run)
    monkeypatch.setattr("playhead.inspect.bench.sweep.num_cores", lambda: 2.0)
    return sweep(BenchJob(world(tmp_path, num=4)), THREADS)


def test_a_value_that_still_gains_is_doubled_until_it_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = swept(tmp_path, monkeypatch, scripted(RATES))
    assert [point.value for point in found.of("workers")] == [0, 1, 2, 4, 8, 16]
    assert (found.best.workers, found.best.lookahead) == (8, 1)
    assert (found.settled, found.rising) == (("workers", "lookahead"), ())
    assert sweep_advice(found) == "use 8 worker threads, look-ahead 1"


def test_a_sweep_that_ends_while_more_still_helps_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = swept(tmp_path, monkeypatch, scripted({value: 10.0 + value for value in (0, 1, 2, 4, 8, 16, 32)}))
    assert (found.best.workers, found.settled, found.rising) == (32, ("lookahead",), ("workers",))
    assert sweep_advice(found) == "use 32 worker threads, look-ahead 1; still rising at workers 32"


def test_no_workers_are_recommended_only_where_any_number_of_them_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = swept(tmp_path, monkeypatch, scripted({0: 4000.0, 1: 2000.0, 2: 2100.0, 4: 2100.0}))
    assert found.best.workers == 0
    assert found.of("lookahead") == ()
    assert enough(points("workers", {0: 20, 1: 20})) == 1
    assert enough(points("threads", {0: 20, 1: 20})) == 0


def test_runs_that_measured_too_little_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = swept(tmp_path, monkeypatch, scripted({0: 5.0, 1: 9.0, 2: 7.0, 4: 1.0}, "unknown"))
    assert not found.recommends
    assert (found.best, found.settled, found.rising) == (THREADS, (), ())
    assert "too little was measured to recommend" in sweep_advice(found)
    assert plain_results(BenchResults(None, sweep=found))["sweep"]["recommends"] is False
    page = page_of(BenchResults(None, sweep=found), "recipe.yaml")
    assert "Too little was measured to recommend" in page
    assert "Use " not in page


def test_the_verdict_after_a_sweep_does_not_advise_what_the_sweep_has_tried(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path), map="bench_maps:slow")
    job = BenchJob(recipe, BenchLimits(seconds=0.5))
    assert "raise workers" in bench(job, THREADS).bottleneck.change
    found = bench(job, THREADS, settled=("workers", "lookahead")).bottleneck
    assert found.limit == "user map"
    assert "raise" not in found.change
