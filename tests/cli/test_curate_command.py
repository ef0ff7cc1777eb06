from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from alm_rows import conversation, write_manifest
from commands import as_json, playhead, printed, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path / "in" / "talks.jsonl", [conversation(i) for i in range(4)])
    return tmp_path


def test_a_run_tells_hours_losses_and_rates(folder: Path) -> None:
    text = printed(folder, "curate", "windows", "in/*.jsonl", "--out", "out")
    for word in (
        "windows kept",
        "lost_win",
        "lost_next_seg_bm",
        "rows/s",
        "s of audio/s",
        "windows/s",
        "process_entry_time",
    ):
        assert word in text
    assert "nothing changed" in printed(folder, "curate", "windows", "in/*.jsonl", "--out", "out")


def test_long_recordings_are_cut_with_flags_a_file_and_words(folder: Path) -> None:
    segments = [{"start": 4.0 * i, "end": 4.0 * i + 3} for i in range(10)]
    write_manifest(folder / "long.jsonl", [{"audio_filepath": "a.wav", "segments": segments}])
    (folder / "cut.yaml").write_text("max_seconds: 20\nmin_silence: 0.5\n")
    command = ["curate", "cut", "long.jsonl", "min_seconds=2", "--out", "cut", "--config", "cut.yaml"]
    found = as_json(folder, *command, "--by", "silence")
    wanted = {"by": "silence", "min_seconds": 2.0, "max_seconds": 20.0, "min_silence": 0.5, "hop_seconds": None}
    assert found["parameters"] == wanted
    assert (found["stage"], found["num_kept"], found["losses"]["too_short"]["count"]) == ("cut", 2, 0)
    assert "nothing changed" in printed(folder, *command)
    other = ["curate", "cut", "long.jsonl", "--out", "other"]
    assert refused(folder, *other, "max_second=3")["fix"] == "did you mean `max_seconds`?"
    assert "by: unknown method" in refused(folder, *other, "--by", "x")["problem"]
    told = refused(folder, *other, "--min-seconds", "9", "--max-seconds", "3")
    assert "min_seconds is above max_seconds" in told["problem"]


def test_audio_that_is_not_there_is_told_or_written_down(folder: Path) -> None:
    command = ["curate", "windows", "in", "--out", "out", "--shards", "wav"]
    assert "no such file" in refused(folder, *command)["problem"]
    found = as_json(folder, *command, "--on-error", "reject")
    assert found["shards"]["num_windows"] == 0
    assert len(found["shards"]["rejected"]) == found["num_kept"] > 0
    assert "listed in audio-rejected.jsonl" in printed(folder, *command, "--on-error", "reject")


def test_audio_is_found_under_a_root_and_dealt_to_tars(folder: Path) -> None:
    segments = [{"start": 4.0 * i, "end": 4.0 * i + 3} for i in range(10)]
    write_manifest(folder / "long.jsonl", [{"audio_filepath": "a.wav", "segments": segments}])
    (folder / "sound").mkdir()
    soundfile.write(folder / "sound" / "a.wav", np.zeros(40 * 8000, np.int16), 8000)
    command = ["curate", "cut", "long.jsonl", "--out", "cut", "--max-seconds", "20", "--shards", "flac"]
    found = as_json(folder, *command, "--audio-root", "sound", "--windows-per-shard", "1")
    assert found["shards"]["num_windows"] == found["shards"]["num_shards"] == found["num_kept"] == 2
    assert sorted(path.name for path in (folder / "cut").glob("*.tar")) == ["audio-00000.tar", "audio-00001.tar"]


@pytest.mark.parametrize("way", ["windows", "cut"])
def test_the_engine_that_is_named_does_the_work(folder: Path, way: str) -> None:
    command = ["curate", way, "in", "--out", "out", "--engine", "ray", "--ray-address", "127.0.0.1:1"]
    assert refused(folder, *command)["problem"] == "no Ray cluster could be joined at 127.0.0.1:1"


def test_json_has_the_summary_under_the_originals_names(folder: Path) -> None:
    found = as_json(folder, "curate", "windows", "in", "--out", "out", "--workers", "1")
    assert (found["changed"], found["num_rows"]) == (True, 4)
    names = {"process_entry_time", "segments_processed", "windows_created", "filter_time", "input_windows"}
    assert names | {"output_windows", "filtered_dur", "process_time"} == set(found["metrics"])
    assert found["metrics"]["segments_processed"] == found["num_segments"] == 160
    assert found["losses"]["win"]["percent_of_segments"] == 100 * found["losses"]["win"]["count"] / 160
    assert {"rows_per_second", "audio_seconds_per_second", "windows_per_second"} <= set(found)
    assert not as_json(folder, "curate", "windows", "in", "--out", "out")["changed"]


def test_every_parameter_is_a_flag_a_key_and_a_word(folder: Path) -> None:
    (folder / "windows.yaml").write_text("target_window_duration: 60\ntolerance: 0.2\nmax_speakers: 4\n")
    flags = ["--min-bandwidth", "8200", "--min-sample-rate", "8000", "--min-speakers", "1", "--no-truncation"]
    flags += ["--drop-fields", "words,text", "--drop-fields-top-level", "segments", "--overlap-percentage", "20"]
    words = ["tolerance=0.3", "target_duration=60"]
    command = ["curate", "windows", "in/talks.jsonl", *words, "--out", "out", "--config", "windows.yaml", *flags]
    assert as_json(folder, *command)["parameters"] == {
        "target_window_duration": 60.0,
        "tolerance": 0.3,
        "min_bandwidth": 8200.0,
        "min_sample_rate": 8000.0,
        "min_speakers": 1,
        "max_speakers": 4,
        "truncation": False,
        "drop_fields": "words,text",
        "drop_fields_top_level": "segments",
        "overlap_percentage": 20.0,
        "target_duration": 60.0,
    }


def test_mistakes_are_errors(folder: Path) -> None:
    base = ("curate", "windows", "in/talks.jsonl", "--out", "out")
    assert "did you mean `tolerance`" in refused(folder, *base, "tolerances=0.1")["fix"]
    assert refused(folder, *base, "--min-speakers", "6")["problem"] == "min_speakers: out of range"
    assert (
        "in/none.jsonl: no such file" in refused(folder, "curate", "windows", "in/none.jsonl", "--out", "o")["problem"]
    )
    assert playhead(folder, *base, "--on-error", "ignore").returncode == 2
    assert playhead(folder, "curate", "windows", "tolerance=0.1", "--out", "out").returncode == 2


def test_a_bad_row_is_an_error_or_is_written_down(folder: Path) -> None:
    with (folder / "in" / "talks.jsonl").open("a") as file:
        file.write('{"segments": [{"start": 1}]}\n')
    base = ("curate", "windows", "in/talks.jsonl", "--out", "out")
    assert refused(folder, *base)["problem"] == "in/talks.jsonl, line 5: segments[0].end: missing"
    found = as_json(folder, *base, "--on-error", "reject")
    assert (found["num_rows"], found["rejected"]) == (4, {"missing": 1})
    entry = json.loads((folder / "out" / "rejected.jsonl").read_text())
    assert (entry["line"], entry["field"]) == (5, "segments[0].end")


def test_without_loss_details_the_records_are_left_out(folder: Path) -> None:
    base = ("curate", "windows", "in/talks.jsonl", "--no-loss-details", "--repeat", "2")
    printed(folder, *base, "--out", "out")
    rows = (folder / "out" / "rows-00000.jsonl").read_text().splitlines()
    assert len(rows) == 8
    assert "lost_win_full_data" not in json.loads(rows[0])["stats"]
