from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_worlds import manifest_of, media_world, objects, recordings, remote_world, rows, until, world
from loopback import serving
from playhead.errors import StoreError
from playhead.inspect.bench.page import page_of
from playhead.inspect.bench.recording import BenchLimits
from playhead.inspect.bench.report import BenchJob, bench
from playhead.inspect.bench.storage_speed import (
    StorageLimits,
    StorageTrial,
    judge_storage,
    measure_storage,
)
from playhead.inspect.bench.text import BenchResults, storage_note
from playhead.inspect.bench.values import LoaderSettings
from playhead.prepare import prepare
from playhead.recipe.values import Fixed
from playhead.store import LocalFiles
from playhead.testing import FaultyFiles
from slow_proxy import slow_proxy
from small_data import recipe_over

QUICK = StorageLimits(seconds=0.3, readers=(1, 2, 4))


def trials(*rates: float, cores_used: float = 0.1) -> list[StorageTrial]:
    return [StorageTrial("sequential", 2**i, 1, rate, 10.0, 0.1, 0.2, cores_used, 1) for i, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "cores_used", "limit", "words"),
    [
        ((100e6, 200e6, 390e6, 760e6), 0.1, "client", "one reader gets 100 MB/s, 8 together 760 MB/s; more readers"),
        ((100e6, 190e6, 200e6, 200e6), 0.1, "server", "8 together 200 MB/s; 2 readers already take all that it gives"),
        ((100e6, 110e6, 105e6, 400e6), 0.1, "client", "8 together 400 MB/s; more readers would get more"),
        ((200e6, 200e6, 200e6, 200e6), 0.1, "server", "one reader already takes all that it gives"),
        ((2e9, 4e9, 4e9, 4e9), 1.9, "cores", "the cores of this machine are the limit, not the storage"),
    ],
)
def test_readers_that_no_longer_add_name_the_limit(
    rates: tuple[float, ...], cores_used: float, limit: str, words: str
) -> None:
    found, sentence = judge_storage(trials(*rates, cores_used=cores_used), cores=2.0)
    assert found == limit
    assert words in sentence


def test_a_storage_that_only_takes_long_to_answer_leaves_the_client_as_the_limit(tmp_path: Path) -> None:
    slow = FaultyFiles(LocalFiles(), latency_seconds=0.05)
    recipe = world(tmp_path, num=20, letters=2000)
    found = until(lambda: measure_storage(recipe, files=slow, limits=QUICK), lambda speed: speed.limit == "client")
    assert found.limit == "client", found.verdict
    assert [(trial.pattern, trial.processes, trial.threads) for trial in found.trials[:4]] == [
        ("sequential", 1, 1),
        ("sequential", 2, 1),
        ("sequential", 4, 1),
        ("sequential", 1, 4),
    ]
    assert all(trial.median_seconds >= 0.05 for trial in found.trials)
    assert found.num_files == 4


def test_a_server_of_little_bandwidth_is_the_limit(tmp_path: Path) -> None:
    served = objects(60, letters=60_000)
    with serving(served) as server, slow_proxy(server.port) as proxy:
        recipe = remote_world(proxy.address, served, tmp_path)
        proxy.set(bytes_per_second=8e6)
        found = until(lambda: measure_storage(recipe, limits=QUICK), lambda speed: speed.limit == "server")
    assert found.limit == "server", found.verdict
    assert found.size_bytes == sum(map(len, served.values()))


def test_a_trial_reads_no_more_bytes_than_it_may(tmp_path: Path) -> None:
    recipe = world(tmp_path, num=40, letters=10_000)
    limits = StorageLimits(seconds=30.0, max_bytes=1 << 20, readers=(1, 2))
    found = measure_storage(recipe, limits=limits)
    largest = max(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    for trial in found.trials:
        each = largest if trial.pattern == "sequential" else 64 << 10
        assert trial.num_bytes <= limits.max_bytes + each * trial.processes * trial.threads


def test_an_error_of_a_reader_is_raised_here(tmp_path: Path) -> None:
    recipe = world(tmp_path, num=5)
    (tmp_path / "part-0.jsonl").write_text("{}\n")
    with pytest.raises(StoreError, match=r"part-0\.jsonl: changed since it was indexed"):
        measure_storage(recipe, limits=QUICK)


def test_compressed_shards_are_read_as_they_are_stored(tmp_path: Path) -> None:
    for shard in range(3):
        text = "".join(json.dumps(row) + "\n" for row in rows(200, letters=300))
        (tmp_path / f"part-{shard}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    recipe = recipe_over(tmp_path, "*.jsonl.gz", batching=Fixed(size=4))
    prepare(recipe, workers=1)
    found = measure_storage(recipe, limits=QUICK)
    assert found.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.gz"))
    report = bench(BenchJob(recipe, BenchLimits(steps=20, seconds=None)), LoaderSettings(workers=0))
    assert report.figures.probe.bytes_per_second > 0


def test_media_that_rows_name_are_measured_in_place_of_a_small_manifest(tmp_path: Path) -> None:
    served = recordings(10, seconds=2.0)
    with serving(served) as server:
        manifest = tmp_path / "manifest.jsonl"
        manifest.write_text(manifest_of(server.address, served))
        recipe = media_world(server.address, str(manifest), tmp_path)
        found = measure_storage(recipe, limits=StorageLimits(seconds=0.1, readers=(1, 2)))
        raw = measure_storage(replace(recipe, media=False), limits=StorageLimits(seconds=0.1, readers=(1, 2)))
    assert found.are_media
    assert found.num_files == 10
    assert found.size_bytes == sum(map(len, served.values()))
    assert storage_note(found).startswith("10 media files that rows name, ")
    assert not raw.are_media
    assert storage_note(raw).startswith("1 shard, ")


def test_trials_that_were_interrupted_keep_what_was_found_if_it_is_enough_for_a_verdict(tmp_path: Path) -> None:
    recipe = world(tmp_path, num=20)

    def interrupt(after: int) -> Callable[[str, int, int], None]:
        def progress(_title: str, done: int, _total: int) -> None:
            if done == after:
                raise KeyboardInterrupt

        return progress

    found = measure_storage(recipe, limits=QUICK, progress=interrupt(2), stops=(KeyboardInterrupt,))
    assert (found.stopped, len(found.trials)) == ("Ctrl-C", 2)
    assert "The storage by itself" in page_of(BenchResults(None, found, None, "SIGINT"), "r.yaml")
    with pytest.raises(KeyboardInterrupt):
        measure_storage(recipe, limits=QUICK, progress=interrupt(1), stops=(KeyboardInterrupt,))
