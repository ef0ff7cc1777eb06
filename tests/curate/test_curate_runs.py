from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from curate_outputs import outputs

from alm_rows import conversation, write_manifest
from playhead.curate import WindowConfig, build_windows, filter_overlaps, run
from playhead.errors import DataError, PrepareError, RecipeError

curate_windows = partial(run.curate_windows, workers=1)  # more only where a test says so


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """Three files of 23 rows, one of them with blank lines, a byte order mark and no newline at its end."""
    folder = tmp_path / "in"
    write_manifest(folder / "b" / "two.jsonl", [conversation(i, words=i % 2 == 0) for i in range(9)])
    write_manifest(folder / "a.json", [conversation(i) for i in range(10, 20)])
    text = "\ufeff\n" + "\n\n".join(json.dumps(conversation(i)) for i in range(20, 24))
    (folder / "c.jsonl").write_text(text, encoding="utf-8")
    (folder / "notes.txt").write_text("not a manifest")
    return folder


def rows_of(out: Path) -> list[bytes]:
    return [line for shard in sorted(out.glob("rows-*.jsonl")) for line in shard.read_bytes().splitlines(keepends=True)]


def test_rows_come_out_in_order_as_the_stages_make_them(tmp_path: Path, manifests: Path) -> None:
    report = curate_windows([str(manifests)], tmp_path / "out", rows_per_shard=5)
    numbers = [*range(10, 20), *range(9), *range(20, 24)]
    given = [conversation(i, words=i < 9 and i % 2 == 0) for i in numbers]
    config = WindowConfig()
    expected = [filter_overlaps(build_windows(row, config), config) for row in given]
    found = [json.dumps(json.loads(line)) for line in rows_of(tmp_path / "out")]
    assert found == [json.dumps(row) for row in expected]
    sizes = [len(shard.read_bytes().splitlines()) for shard in sorted((tmp_path / "out").glob("rows-*.jsonl"))]
    assert sizes == [5, 5, 5, 5, 3]
    summary = report.summary
    assert (summary.num_rows, summary.num_shards) == (23, 5)
    assert summary.num_windows == sum(len(row["windows"]) for row in expected)
    assert summary.num_kept == sum(len(row["filtered_windows"]) for row in expected)
    assert summary.num_truncations == sum(row["truncation_events"] for row in expected)
    assert summary.losses["win"].count == sum(row["stats"]["lost_win"] for row in expected)
    assert summary.metrics.filtered_dur == pytest.approx(sum(row["filtered_dur"] for row in expected))
    for when, total in (("windows", summary.num_windows), ("kept", summary.num_kept)):
        for what in ("duration", "speakers", "overlap"):
            assert sum(summary.histograms[f"{when}_{what}"].counts) == total
    assert len(summary.largest) == 10
    assert summary.largest[0].bytes == max(map(len, rows_of(tmp_path / "out")))


def test_the_number_of_workers_does_not_show(tmp_path: Path, manifests: Path) -> None:
    for workers in (1, 2):
        curate_windows([str(manifests)], tmp_path / f"out{workers}", rows_per_shard=4, workers=workers)
    assert outputs(tmp_path / "out1") == outputs(tmp_path / "out2")


def test_kept_windows_are_listed_with_their_source_and_an_index(tmp_path: Path, manifests: Path) -> None:
    curate_windows([str(manifests)], tmp_path / "out", rows_per_shard=6)
    data = (tmp_path / "out" / "windows.jsonl").read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    made = [
        (row["audio_filepath"], window)
        for row in map(json.loads, rows_of(tmp_path / "out"))
        for window in row["filtered_windows"]
    ]
    assert len(lines) == len(made)
    for line, (audio, window) in zip(lines, made, strict=True):
        segments = window["segments"]
        assert line["audio_filepath"] == audio
        assert line["offset"] == segments[0]["start"]
        assert line["duration"] == segments[-1]["end"] - segments[0]["start"]
        assert line["sample_rate"] == 16000
        assert line["speakers"] == list(dict.fromkeys(segment["speaker"] for segment in segments))
        assert line["text"] == " ".join(segment["text"] for segment in segments if segment["text"])
        assert " ".join(turn["text"] for turn in line["turns"] if turn["text"]) == line["text"]
        names = [turn["speaker"] for turn in line["turns"]]
        assert all(one != other for one, other in pairwise(names))
        assert line["turns"][0]["start"] == line["offset"]
    assert lines[-1]["source"] == {"file": str(manifests / "c.jsonl"), "row": 3}
    assert len({line["id"] for line in lines}) == len(lines)
    offsets = np.frombuffer((tmp_path / "out" / "windows.jsonl.idx").read_bytes(), dtype="<u8")
    assert offsets[-1] == len(data)
    assert [json.loads(data[a:b])["id"] for a, b in pairwise(offsets)] == [line["id"] for line in lines]


def test_two_kept_windows_of_equal_times_have_different_ids(tmp_path: Path) -> None:
    segments = [{"start": 0.0, "end": 5.0, "speaker": "a"}, {"start": 0.0, "end": 5.0, "speaker": "b"}]
    segments.append({"start": 5.0, "end": 10.0, "speaker": "c"})
    path = write_manifest(
        tmp_path / "x.jsonl", [{"audio_filepath": "x", "audio_sample_rate": 16000, "segments": segments}]
    )
    config = WindowConfig(target_window_duration=10, min_bandwidth=0)
    assert curate_windows([str(path)], tmp_path / "out", config).summary.num_kept == 2
    ids = [json.loads(line)["id"] for line in (tmp_path / "out" / "windows.jsonl").read_text().splitlines()]
    assert ids[1] == f"{ids[0]}-2"


def test_a_second_run_does_nothing(tmp_path: Path, manifests: Path) -> None:
    first = curate_windows([str(manifests)], tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    second = curate_windows([str(manifests)], tmp_path / "out")
    assert (first.changed, second.changed) == (True, False)
    assert msgspec.to_builtins(second.summary) == msgspec.to_builtins(first.summary)
    assert all(path.stat().st_mtime_ns == mark for path, mark in before.items())


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"config": WindowConfig(tolerance=0.2)}, "tolerance: 0.1 before, 0.2 now"),
        ({"rows_per_shard": 7}, "rows_per_shard: 2000 before, 7 now"),
        ({"loss_details": False}, "loss details: True before, False now"),
        ({"repeat": 2}, "repeat: 1 before, 2 now"),
    ],
)
def test_another_request_is_refused_with_the_difference(
    tmp_path: Path, manifests: Path, options: dict[str, Any], found: str
) -> None:
    curate_windows([str(manifests)], tmp_path / "out")
    with pytest.raises(PrepareError, match=found):
        curate_windows([str(manifests)], tmp_path / "out", **options)
    assert curate_windows([str(manifests)], tmp_path / "out", force=True, **options).changed


def test_changed_inputs_are_refused_and_named(tmp_path: Path, manifests: Path) -> None:
    curate_windows([str(manifests)], tmp_path / "out")
    write_manifest(manifests / "a.json", [conversation(99)])
    write_manifest(manifests / "d.jsonl", [conversation(98)])
    with pytest.raises(PrepareError, match=r"d\.jsonl: a new input.*a\.json: has changed since"):
        curate_windows([str(manifests)], tmp_path / "out")
    report = curate_windows([str(manifests)], tmp_path / "out", force=True)
    assert report.summary.num_rows == 1 + 9 + 4 + 1


def test_outputs_that_were_touched_or_are_not_ours_are_refused(tmp_path: Path, manifests: Path) -> None:
    curate_windows([str(manifests)], tmp_path / "out")
    with (tmp_path / "out" / "windows.jsonl").open("a") as file:
        file.write("more\n")
    with pytest.raises(PrepareError, match=r"windows\.jsonl is missing, or has been changed"):
        curate_windows([str(manifests)], tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rows-00000.jsonl").write_text("{}\n")
    with pytest.raises(PrepareError, match=r"no curate\.json"):
        curate_windows([str(manifests)], tmp_path / "mine")


def test_inputs_inside_the_output_are_refused(tmp_path: Path, manifests: Path) -> None:
    with pytest.raises(RecipeError, match="is inside the output directory"):
        curate_windows([str(manifests)], tmp_path)


def test_a_directory_without_manifests_and_a_file_that_is_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="none: holds no manifest"):
        curate_windows([str(tmp_path / "none")], tmp_path / "out")
    with pytest.raises(DataError, match=r"x\.jsonl: no such file"):
        curate_windows([str(tmp_path / "x.jsonl")], tmp_path / "out")


def test_repeating_reads_the_input_again(tmp_path: Path, manifests: Path) -> None:
    once = curate_windows([str(manifests)], tmp_path / "once")
    twice = curate_windows([str(manifests)], tmp_path / "twice", repeat=2, rows_per_shard=7)
    assert rows_of(tmp_path / "twice") == 2 * rows_of(tmp_path / "once")
    assert twice.summary.num_kept == 2 * once.summary.num_kept


def start(folder: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "playhead", "curate", "windows", str(folder), "--out", str(out)]
    command += ["--rows-per-shard", "10", "--repeat", "40", "--workers", str(workers), "--on-error", "reject"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path, manifests: Path, workers: int) -> None:
    (manifests / "bad.jsonl").write_text("{}\n[]\n{\n")
    assert start(manifests, tmp_path / "whole", 1).wait() == 0
    out = tmp_path / "killed"
    num_shards = len(list((tmp_path / "whole").glob("rows-*.jsonl")))
    for number in (0, num_shards // 3, num_shards - 2, num_shards - 1):
        process = start(manifests, out, workers)
        while process.poll() is None and not (out / f"rows-{number:05d}.jsonl").exists():
            time.sleep(0.001)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert start(manifests, out, workers).wait() == 0
    assert outputs(out) == outputs(tmp_path / "whole")
    assert not (out / ".work").exists()


@pytest.mark.full
def test_a_kill_while_parts_are_put_together_is_mended(tmp_path: Path, manifests: Path) -> None:
    """Between any two files that the end of a run writes, the directory is as a kill would leave it."""
    curate_windows([str(manifests)], tmp_path / "whole", rows_per_shard=5, workers=1)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom playhead.curate.run import curate_windows\n"
        "left = int(sys.argv[3])\n"
        "def count(event, args):\n"
        "    global left\n"
        "    if event == 'os.rename':\n"
        "        left -= 1\n"
        "        if left == 0: os._exit(9)\n"
        "sys.addaudithook(count)\n"
        "curate_windows([sys.argv[1]], sys.argv[2], rows_per_shard=5, workers=1)\n"
    )
    for number in (1, 3, 8, 15, 16, 17, 18, 19, 20, 21):
        out = tmp_path / f"killed{number}"
        command = [sys.executable, "-c", code, str(manifests), str(out), str(number)]
        killed = subprocess.run(command, check=False, capture_output=True)
        assert killed.returncode == 9, killed.stderr
        curate_windows([str(manifests)], out, rows_per_shard=5, workers=1)
        assert outputs(out) == outputs(tmp_path / "whole")
        assert not [path for path in out.iterdir() if path.suffix == ".tmp"]


def test_two_runs_at_once_are_one_and_an_error(tmp_path: Path, manifests: Path) -> None:
    process = start(manifests, tmp_path / "out", 1)
    try:
        while not (tmp_path / "out" / "rows-00001.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.005)
        with pytest.raises(PrepareError, match=f"is being written by process {process.pid} on "):
            curate_windows([str(manifests)], tmp_path / "out")
    finally:
        process.kill()
        process.wait()


def test_a_directory_may_hold_the_output(tmp_path: Path, manifests: Path) -> None:
    out = manifests / "curated"
    assert curate_windows([str(manifests)], out, workers=1).changed
    assert not curate_windows([str(manifests)], out, workers=1).changed


def test_damaged_summaries_are_noticed(tmp_path: Path, manifests: Path) -> None:
    out = tmp_path / "out"
    curate_windows([str(manifests)], out, workers=1)
    (out / "summary.json").write_text("{}")
    with pytest.raises(PrepareError, match=r"summary\.json has been changed"):
        curate_windows([str(manifests)], out, workers=1)


def test_windows_that_a_row_brings_along_are_not_listed(tmp_path: Path) -> None:
    row = {"audio_filepath": "a.wav", "audio_sample_rate": 16000, "segments": []}
    segments = [{"start": 0, "end": 1, "speaker": "a"}]
    brought = [[{"segments": segments}], "text", 3, None]
    write_manifest(tmp_path / "a.jsonl", [{**row, "filtered_windows": each} for each in brought])
    report = curate_windows([str(tmp_path / "a.jsonl")], tmp_path / "out", workers=1)
    assert report.summary.num_kept == 0
    assert (tmp_path / "out" / "windows.jsonl").read_bytes() == b""
    assert [json.loads(line)["filtered_windows"] for line in rows_of(tmp_path / "out")] == brought


def test_writing_anew_removes_the_audio_of_earlier_windows_and_no_other(tmp_path: Path, manifests: Path) -> None:
    out = tmp_path / "out"
    curate_windows([str(manifests)], out, workers=1)
    for name in ("audio-00000.tar", "audio-00000.tar.done", "audio-mine.tar"):
        (out / name).touch()
    curate_windows([str(manifests)], out, workers=1, force=True)
    assert [path.name for path in out.glob("audio-*")] == ["audio-mine.tar"]
