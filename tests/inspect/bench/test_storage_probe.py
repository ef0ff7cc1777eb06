from __future__ import annotations

from pathlib import Path

from bench_worlds import world
from playhead.feed.stats import BatchTiming
from playhead.inspect.bench.storage_probe import files_waited_for, probe_storage, stamps_to_probe, stored_stamps
from playhead.resolve import map_tables
from playhead.store import CountingFiles, LocalFiles
from playhead.testing import FaultyFiles

FAR = FaultyFiles(LocalFiles(), latency_seconds=0.001)


def slowest(path: Path | None, seconds: float) -> BatchTiming:
    return BatchTiming(1, 0, 0, 0, 0.0, 1.0, slowest_path=None if path is None else str(path), slowest_seconds=seconds)


def test_a_probe_asks_little(tmp_path: Path) -> None:
    recipe = world(tmp_path, num=20, letters=5000)
    files = CountingFiles(LocalFiles())
    stamps = stored_stamps(LocalFiles(), map_tables(recipe).values())
    found = probe_storage(files, stamps)
    assert found.latency_seconds > 0
    assert found.bytes_per_second > 0
    assert files.counts["bytes"] <= (64 << 20) + 8 * (2 << 20)
    assert probe_storage(files, {}).bytes_per_second == 0


def test_the_files_that_most_time_was_spent_on_are_probed(tmp_path: Path) -> None:
    tables = map_tables(world(tmp_path, num=20)).values()
    shards = sorted(tmp_path.glob("*.jsonl"))
    media = [tmp_path / f"{i}.wav" for i in range(200)]
    for path in media:
        path.write_bytes(b"x")
    timings = [slowest(shards[0], 1.0), slowest(None, 0.0), *(slowest(path, 0.002) for path in media)]
    read = files_waited_for(FAR, tables, timings)
    assert read.media is None
    assert stamps_to_probe(FAR, tables, read).keys() == {*map(str, shards)}
    read = files_waited_for(FAR, tables, timings[1:])
    found = stamps_to_probe(FAR, tables, read)
    assert 1 < len(found) <= 64
    assert found.keys() < {*map(str, media)}


def test_media_that_do_not_exist_are_left_out_of_a_probe(tmp_path: Path) -> None:
    (tmp_path / "here.wav").write_bytes(b"x")
    timings = [slowest(tmp_path / "here.wav", 1.0), slowest(tmp_path / "gone.wav", 1.0)]
    read = files_waited_for(FAR, (), timings)
    assert [*stamps_to_probe(FAR, (), read)] == [str(tmp_path / "here.wav")]


def test_media_on_a_disk_are_not_probed_as_they_are_in_the_page_cache_after_a_run(tmp_path: Path) -> None:
    (tmp_path / "here.wav").write_bytes(b"x")
    read = files_waited_for(LocalFiles(), (), [slowest(tmp_path / "here.wav", 1.0)])
    assert not read.requests_cost
    assert stamps_to_probe(LocalFiles(), (), read) == {}
