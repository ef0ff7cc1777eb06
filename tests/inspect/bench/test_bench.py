"""The verdict on real pipelines, each slow in one place. Workers are threads where processes make no difference.

What a verdict is made of is tested exactly in test_bottleneck.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_worlds import (
    bench_until,
    manifest_of,
    media_world,
    objects,
    recordings,
    remote_world,
    until,
    world,
)
from loopback import serving
from playhead.errors import PlayheadError
from playhead.inspect.bench.recording import BenchLimits
from playhead.inspect.bench.report import BenchJob, BenchReport, bench
from playhead.inspect.bench.values import LoaderSettings
from playhead.recipe.values import Recipe
from playhead.store import LocalFiles
from playhead.testing import FaultyFiles
from slow_proxy import slow_proxy

THREADS = LoaderSettings(worker_kind="thread")
SHORT = BenchLimits(seconds=1.0)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return world(tmp_path_factory.mktemp("bench"))


def limit_of(report: BenchReport) -> str:
    return report.bottleneck.limit


def test_a_storage_that_takes_long_to_answer_is_latency_and_more_requests_at_once_help(recipe: Recipe) -> None:
    slow = FaultyFiles(LocalFiles(), latency_seconds=0.02)
    report = bench_until(
        "storage latency", BenchJob(recipe, SHORT, files=slow), LoaderSettings(worker_kind="thread", threads=0)
    )
    assert limit_of(report) == "storage latency", report.bottleneck
    assert "look-ahead from 2 to" in report.bottleneck.change
    assert report.figures.probe.latency_seconds >= 0.02


def test_a_storage_of_little_bandwidth_is_bandwidth_and_a_cache_helps(tmp_path: Path) -> None:
    served = objects(60, letters=60_000)
    with serving(served) as server, slow_proxy(server.port) as proxy:
        recipe = remote_world(proxy.address, served, tmp_path)
        proxy.set(bytes_per_second=4e6)
        report = bench_until("storage bandwidth", BenchJob(recipe, SHORT), THREADS)
        assert limit_of(report) == "storage bandwidth", report.bottleneck
        assert "shard_cache" in report.bottleneck.change
        assert report.slow == () or report.slow[0].place.startswith(proxy.address)
        proxy.set(bytes_per_second=None, latency_seconds=0.1)
        far = bench_until("storage latency", BenchJob(recipe, SHORT), LoaderSettings(worker_kind="thread", threads=0))
        assert limit_of(far) == "storage latency", far.bottleneck


def test_the_storage_of_media_that_rows_of_a_local_manifest_name_is_what_is_probed(tmp_path: Path) -> None:
    served = recordings(60, seconds=2.0)
    with serving(served) as server, slow_proxy(server.port) as proxy:
        manifest = tmp_path / "manifest.jsonl"
        manifest.write_text(manifest_of(proxy.address, served))
        recipe = media_world(proxy.address, str(manifest), tmp_path)
        proxy.set(bytes_per_second=1.5e6)
        report = bench_until("storage bandwidth", BenchJob(recipe, SHORT), THREADS)
        assert limit_of(report) == "storage bandwidth", report.bottleneck
        assert report.figures.probe.bytes_per_second < 3e6
        assert "copy the media" in report.bottleneck.change


def test_media_and_a_small_manifest_on_a_far_store_are_latency(tmp_path: Path) -> None:
    served = recordings(60, seconds=2.0)
    with serving(served) as server, slow_proxy(server.port) as proxy:
        server.objects["/manifest.jsonl"] = manifest_of(proxy.address, served).encode()
        recipe = media_world(proxy.address, f"{proxy.address}/manifest.jsonl", tmp_path)
        proxy.set(latency_seconds=0.05)
        report = bench_until("storage latency", BenchJob(recipe, SHORT), THREADS)
    assert limit_of(report) == "storage latency", report.bottleneck
    assert report.figures.probe.bytes_per_second > report.figures.num_bytes / report.figures.seconds


def test_many_small_shards_on_a_far_store_are_latency(tmp_path: Path) -> None:
    """Of a shard of a few kilobytes there is no large request: the rate of the probe is a lower bound."""
    served = objects(20, letters=0)
    with serving(served) as server, slow_proxy(server.port) as proxy:
        recipe = remote_world(proxy.address, served, tmp_path)
        proxy.set(latency_seconds=0.05)
        report = bench_until("storage latency", BenchJob(recipe, SHORT), THREADS)
    assert limit_of(report) == "storage latency", report.bottleneck
    assert report.figures.probe.at_least


def test_rows_that_take_long_to_parse_are_decoding(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path, num=40, numbers=60_000), fields=["n"])
    report = bench_until("decode CPU", BenchJob(recipe, SHORT), LoaderSettings(workers=1))
    assert limit_of(report) == "decode CPU", report.bottleneck


@pytest.mark.parametrize("settings", [LoaderSettings(), LoaderSettings(workers=0), THREADS], ids=str)
def test_a_slow_map_is_the_map_with_every_kind_of_worker(recipe: Recipe, settings: LoaderSettings) -> None:
    report = bench_until("user map", BenchJob(replace(recipe, map="bench_maps:slow"), SHORT), settings)
    assert limit_of(report) == "user map", report.bottleneck
    assert f"raise workers from {settings.workers} to" in report.bottleneck.change
    assert len(report.workers) == max(1, settings.workers) + 1
    assert sum(row.batches for row in report.workers[:-1]) == report.workers[-1].batches == report.figures.num_batches


def test_a_slow_collate_function_is_collation(recipe: Recipe) -> None:
    report = bench_until("collation", BenchJob(replace(recipe, collate="bench_maps:slow_collate"), SHORT), THREADS)
    assert limit_of(report) == "collation", report.bottleneck


def test_a_slow_trainer_is_the_consumer(recipe: Recipe) -> None:
    limits = BenchLimits(seconds=1.5, step_seconds=0.15)
    report = bench_until("the consumer", BenchJob(recipe, limits), THREADS)
    assert limit_of(report) == "the consumer", report.bottleneck
    assert "nothing to change" in report.bottleneck.change


def test_batches_of_uneven_time_need_more_look_ahead_and_have_it_with_what_is_recommended(recipe: Recipe) -> None:
    job = BenchJob(replace(recipe, map="bench_maps:slow_at_times"), BenchLimits(seconds=4, step_seconds=0.05))
    report = bench_until("look-ahead", job, LoaderSettings(lookahead=1, worker_kind="thread"))
    assert limit_of(report) == "look-ahead", report.bottleneck
    assert "raise look-ahead from 1 to" in report.bottleneck.change
    assert report.slow
    assert {wait.stage for wait in report.slow[:3]} == {"map"}
    wanted = int(report.bottleneck.change.rpartition(" ")[2])
    deeper = LoaderSettings(lookahead=wanted, worker_kind="thread")
    before = report.figures.wait_share
    better = until(lambda: bench(job, deeper), lambda found: found.figures.wait_share < before)
    assert better.figures.wait_share < before


def test_what_is_measured_adds_up(recipe: Recipe) -> None:
    report = bench(BenchJob(recipe, BenchLimits(steps=40, seconds=None)), LoaderSettings(workers=0))
    figures = report.figures
    assert figures.num_batches == figures.num_steps == len(report.records) - report.num_warm
    assert report.records[-1].timing.step == 39
    assert figures.wait_seconds + figures.trainer_seconds == pytest.approx(figures.seconds, abs=1e-6)
    assert sum(figures.stages.values()) == pytest.approx(figures.busy_seconds, abs=1e-6)
    assert figures.num_samples == 4 * figures.num_batches
    assert figures.num_bytes > 0


def test_a_run_can_begin_at_a_state_and_ends_with_the_stream(recipe: Recipe) -> None:
    once = replace(recipe, epochs=1)
    first = bench(BenchJob(once, BenchLimits(steps=50, seconds=None)), LoaderSettings(workers=0))
    assert first.state is not None
    rest = bench(BenchJob(once, BenchLimits(seconds=60)), LoaderSettings(workers=0), state=first.state)
    assert (rest.records[0].timing.step, rest.records[-1].timing.step) == (50, 199)
    assert rest.state is None


def test_a_stream_that_ends_before_all_workers_are_warm_is_judged_all_the_same(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path, num=4), epochs=1, map="bench_maps:slow")
    report = bench(BenchJob(recipe, SHORT), LoaderSettings(workers=8, worker_kind="thread"))
    assert len(report.records) == 4
    assert report.figures.num_batches == 3


def test_a_few_batches_of_a_moment_have_figures_and_no_verdict(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path, num=5), epochs=1)
    report = bench(BenchJob(recipe, SHORT), LoaderSettings(workers=2, worker_kind="thread"))
    assert limit_of(report) == "unknown"
    assert str(report.bottleneck).startswith("too little was measured for a verdict: ")
    assert "bench with more data or smaller batches" in report.bottleneck.change
    assert report.figures.num_batches >= 1


def test_too_few_batches_are_an_error_that_says_so(tmp_path: Path) -> None:
    recipe = replace(world(tmp_path, num=1), epochs=1)
    with pytest.raises(PlayheadError, match="too few batches were delivered") as caught:
        bench(BenchJob(recipe, SHORT), LoaderSettings(workers=0))
    assert caught.value.found == "1 in all, then the stream ended"
    assert caught.value.fix == "bench with more data, or with smaller batches"


def test_an_interrupted_run_is_judged_by_what_was_measured(recipe: Recipe) -> None:
    steps_seen = []

    def interrupt(_done: float, steps: int) -> None:
        steps_seen.append(steps)
        if steps > 15:
            raise KeyboardInterrupt

    job = BenchJob(replace(recipe, map="bench_maps:slow"), BenchLimits(seconds=60))
    report = bench(job, LoaderSettings(workers=0), interrupt)
    assert report.stopped == "Ctrl-C"
    assert report.figures.num_batches == steps_seen[-1] - report.num_warm
    assert limit_of(report) == "user map"
