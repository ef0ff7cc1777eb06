"""Curating on engines, from stores, of recordings without speakers, and down to the audio: the same outputs."""

from __future__ import annotations

import json
import os
import signal
import tarfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from curate_outputs import outputs
from test_cutting import slow

from alm_rows import conversation, write_manifest
from loopback import serving
from playhead.curate.config import CutConfig
from playhead.curate.run import curate_windows
from playhead.curate.shards import ShardConfig
from playhead.errors import DataError, PrepareError, RecipeError
from playhead.feed.loader import Loader
from playhead.jobs import Ray
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.store import MEMORY

TALK = [
    {"start": 0.5, "end": 6.0, "text": "good morning"},
    {"start": 6.4, "end": 11.0, "text": "and welcome"},
    {"start": 14.0, "end": 19.0, "text": "to a long talk"},
    {"start": 40.0, "end": 40.5, "text": "hm"},
]
CUT = CutConfig(min_seconds=5, max_seconds=15)


def talks(path: Path, count: int = 6) -> Path:
    rows = [
        {"audio_filepath": f"{i}.wav", "sampling_rate": 8000, "duration": 60, "segments": TALK} for i in range(count)
    ]
    return write_manifest(path, rows)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_long_recordings_are_cut_into_the_same_kinds_of_files(tmp_path: Path) -> None:
    talks(tmp_path / "in.jsonl")
    report = curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "out", CUT, rows_per_shard=4, workers=1)
    assert (report.summary.num_kept, report.summary.num_windows, report.summary.seconds_kept) == (12, 12, 6 * 15.5)
    assert (report.summary.losses["too_short"].count, report.summary.losses["too_short"].seconds) == (6, 3.0)
    found = lines(tmp_path / "out" / "windows.jsonl")
    expected = slow(TALK, 60, CUT)
    assert [(line["offset"], line["offset"] + line["duration"]) for line in found[:2]] == expected
    assert [line["text"] for line in found[:2]] == ["good morning and welcome", "to a long talk"]
    assert found[0]["sample_rate"] == 8000
    assert len({line["id"] for line in found}) == 12
    rows = lines(tmp_path / "out" / "rows-00000.jsonl") + lines(tmp_path / "out" / "rows-00001.jsonl")
    assert [row["audio_filepath"] for row in rows] == [f"{i}.wav" for i in range(6)]
    assert "lost_too_short" in (tmp_path / "out" / "report.html").read_text()


def test_manifests_and_recordings_in_memory_are_curated_within_one_process(tmp_path: Path) -> None:
    manifest = talks(tmp_path / "in.jsonl")
    for i in range(6):
        samples = np.random.default_rng(i).integers(-9999, 9999, 60 * 8000, dtype=np.int16)
        soundfile.write(tmp_path / f"{i}.wav", samples, 8000)
        MEMORY.write(f"memory://talks/deep/{i}.wav", (tmp_path / f"{i}.wav").read_bytes())
    MEMORY.write("memory://talks/deep/in.jsonl", manifest.read_bytes())
    for words, out in (([str(manifest)], "local"), (["memory://talks"], "memory")):
        report = curate_windows(words, tmp_path / out, CUT, rows_per_shard=2, shards=ShardConfig())
        assert report.shards is not None
        assert report.shards.num_windows == 12
    local, memory = (lines(tmp_path / out / "windows.jsonl") for out in ("local", "memory"))
    assert [line["id"] for line in local] == [line["id"] for line in memory]
    assert {line["source"]["file"] for line in memory} == {"memory://talks/deep/in.jsonl"}
    clips = []
    for out in ("local", "memory"):
        with tarfile.open(tmp_path / out / "audio-00000.tar") as tar:
            clips.append({one.name: tar.extractfile(one).read() for one in tar if one.name.endswith(".wav")})
    assert clips[0] == clips[1]


def test_a_recipe_reads_the_windows_of_long_recordings(tmp_path: Path) -> None:
    talks(tmp_path / "in.jsonl")
    curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "out", CUT, workers=1)
    source = {
        "name": "talks",
        "path": f"{tmp_path}/out/windows.jsonl",
        "length": {"field": "duration", "unit": "seconds"},
    }
    values = {"sources": [source], "batching": {"type": "budget", "budget": 40}, "collate": "list", "epochs": 1}
    recipe = Recipe.parse({**values, "cache_dir": str(tmp_path / "cache")})
    prepare(recipe)
    with Loader(recipe, rank=0, world_size=1) as loader:
        texts = [sample["text"] for batch in loader for sample in batch["samples"]]
    assert sorted(texts) == ["good morning and welcome"] * 6 + ["to a long talk"] * 6


def test_hops_need_no_segments_and_silences_do(tmp_path: Path) -> None:
    write_manifest(tmp_path / "in.jsonl", [{"audio_filepath": "a.wav", "duration": 25.0}])
    report = curate_windows(
        [str(tmp_path / "in.jsonl")], tmp_path / "hop", CutConfig(by="hop", max_seconds=10, min_seconds=1), workers=1
    )
    assert (report.summary.num_kept, report.summary.seconds_kept) == (3, 25.0)
    with pytest.raises(DataError, match="line 1: segments: is not a list of segments"):
        curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "silence", CUT, workers=1)


def test_bad_rows_of_long_recordings_are_told_or_written_down(tmp_path: Path) -> None:
    rows = [
        {"audio_filepath": "a.wav", "segments": [{"start": 3.0, "end": 1.0}]},
        {"audio_filepath": "b.wav", "segments": TALK},
    ]
    write_manifest(tmp_path / "in.jsonl", rows)
    with pytest.raises(DataError, match=r"line 1: segments\[0\]\.end: the end is before the start"):
        curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "out", CUT, workers=1)
    report = curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "out", CUT, workers=1, on_error="reject")
    assert (report.summary.num_rows, report.summary.num_rejected, report.summary.num_kept) == (1, 1, 2)


def test_another_way_to_cut_is_another_run(tmp_path: Path) -> None:
    talks(tmp_path / "in.jsonl")
    curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "out", CUT, workers=1)
    with pytest.raises(PrepareError, match="`curate cut` before, `curate windows` now"):
        curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "out", workers=1)
    with pytest.raises(PrepareError, match=r"max_seconds: 15\.0 before, 12\.0 now"):
        curate_windows(
            [str(tmp_path / "in.jsonl")], tmp_path / "out", CutConfig(min_seconds=5.0, max_seconds=12.0), workers=1
        )


def test_ray_gives_the_bytes_of_processes(tmp_path: Path, ray_cluster: str) -> None:
    write_manifest(tmp_path / "in" / "a.jsonl", [conversation(i) for i in range(20)])
    curate_windows([str(tmp_path / "in")], tmp_path / "local", rows_per_shard=3, workers=2)
    curate_windows([str(tmp_path / "in")], tmp_path / "ray", rows_per_shard=3, engine=Ray(ray_cluster))
    assert outputs(tmp_path / "ray") == outputs(tmp_path / "local")
    talks(tmp_path / "talks.jsonl", 20)
    for name, engine in (("local", None), ("ray", Ray(ray_cluster))):
        curate_windows([str(tmp_path / "talks.jsonl")], tmp_path / f"cut-{name}", CUT, rows_per_shard=3, engine=engine)
    assert outputs(tmp_path / "cut-ray") == outputs(tmp_path / "cut-local")


@pytest.mark.full
def test_a_ray_worker_killed_in_mid_run_costs_nothing(tmp_path: Path, ray_cluster: str) -> None:
    write_manifest(tmp_path / "in.jsonl", [conversation(i, 200) for i in range(40)])
    curate_windows([str(tmp_path / "in.jsonl")], tmp_path / "local", rows_per_shard=60, repeat=15, workers=1)
    out = tmp_path / "ray"
    killed: list[int] = []

    def kill_one() -> None:
        """A half file has the name of the process that writes it."""
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for half in out.glob(".rows-*.tmp"):
                pid = int(half.name.split(".")[-2])
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
            time.sleep(0.001)

    killer = threading.Thread(target=kill_one)
    killer.start()
    curate_windows([str(tmp_path / "in.jsonl")], out, rows_per_shard=60, repeat=15, engine=Ray(ray_cluster))
    killer.join()
    assert killed
    assert killed != [os.getpid()]
    assert outputs(out) == outputs(tmp_path / "local")


def test_manifests_in_a_bucket_are_read_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path / "in" / "a.jsonl", [conversation(i) for i in range(5)])
    write_manifest(tmp_path / "in" / "b.jsonl", [conversation(i) for i in range(5, 9)])
    objects = {f"/talks/in/{name}": (tmp_path / "in" / name).read_bytes() for name in ("a.jsonl", "b.jsonl")}
    curate_windows([str(tmp_path / "in")], tmp_path / "local", rows_per_shard=4, workers=1)
    with serving({**objects, "/talks/in/readme.txt": b"no manifest"}) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        for out, word in (("folder", "s3://talks/in"), ("pattern", "s3://talks/in/*.jsonl")):
            curate_windows([word], tmp_path / out, rows_per_shard=4, workers=1)
    for out in ("folder", "pattern"):
        for shard in ("rows-00000.jsonl", "rows-00001.jsonl", "rows-00002.jsonl"):
            assert (tmp_path / out / shard).read_bytes() == (tmp_path / "local" / shard).read_bytes()
        sources = [line["source"] for line in lines(tmp_path / out / "windows.jsonl")]
        assert {source["file"] for source in sources} == {"s3://talks/in/a.jsonl", "s3://talks/in/b.jsonl"}


@pytest.mark.parametrize("out", ["https://host/out", "ais://bucket/out", "memory://out", "ftp://host/out"])
def test_a_place_that_cannot_be_written_to_is_refused_by_its_name(tmp_path: Path, out: str) -> None:
    talks(tmp_path / "in.jsonl")
    with pytest.raises(RecipeError, match=f"{out}: cannot be written to"):
        curate_windows([str(tmp_path / "in.jsonl")], out, CUT)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_audio_of_windows_is_cut_beside_them(tmp_path: Path, workers: int) -> None:
    """Relative audio paths begin where the row's manifest is, not where the windows are."""
    talks(tmp_path / "in" / "talks.jsonl", 3)
    noise = np.random.default_rng(0).integers(-9000, 9000, (3, 60 * 8000), dtype=np.int16)
    for i in range(3):
        soundfile.write(tmp_path / "in" / f"{i}.wav", noise[i], 8000)
    how = {"workers": workers, "shards": ShardConfig(kind="flac", windows_per_shard=4)}
    report = curate_windows([str(tmp_path / "in")], tmp_path / "out", CUT, **how)
    assert report.shards is not None
    assert (report.shards.num_windows, report.shards.num_shards, report.shards.rejected) == (6, 2, ())
    window = lines(tmp_path / "out" / "windows.jsonl")[3]
    with tarfile.open(tmp_path / "out" / "audio-00000.tar") as tar:
        clip, rate = soundfile.read(tar.extractfile(f"{window['id']}.flac"), dtype="int16")
    first = round(window["offset"] * 8000)
    assert np.array_equal(clip, noise[1][first : first + len(clip)])
    assert (rate, len(clip)) == (8000, round(window["duration"] * 8000))
    again = curate_windows([str(tmp_path / "in")], tmp_path / "out", CUT, **how)
    assert not again.changed
    assert again.shards is not None
    assert again.shards.kept_shards == 2
