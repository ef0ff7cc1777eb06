from __future__ import annotations

import copy
import json
import os
from typing import Any

import alm_oracle
import alm_twin
import pytest
from hypothesis import example, given, settings

from alm_rows import any_rows, conversation, parameters, talks
from playhead.curate import WindowConfig, build_windows, filter_overlaps
from playhead.curate.curated import Curator
from playhead.curate.fast_windows import suits

DEFAULTS: dict[str, Any] = {
    "target_window_duration": 120.0,
    "tolerance": 0.1,
    "min_bandwidth": 8000,
    "min_sample_rate": 16000,
    "min_speakers": 2,
    "max_speakers": 5,
    "truncation": True,
    "drop_fields": "words",
    "drop_fields_top_level": "words,segments",
    "overlap_percentage": 50,
    "target_duration": 120.0,
}


# The same seconds, once whole and once not: who speaks first comes first.
EQUAL_SHARES: dict[str, Any] = {
    "audio_filepath": "a.wav",
    "audio_sample_rate": 16000,
    "segments": [{"start": 0, "end": 5, "speaker": "a"}, {"start": 5.0, "end": 10.0, "speaker": "b"}],
}


def line_of(row: dict[str, Any]) -> str:
    """Kinds of numbers and order of keys show in a text; tuples and lists are alike."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def moved(row: dict[str, Any], by: float) -> dict[str, Any]:
    """The recording with another start of time."""
    for segment in row["segments"]:
        segment["start"], segment["end"] = segment["start"] + by, segment["end"] + by
    return row


def plain(row: dict[str, Any], config: WindowConfig) -> dict[str, Any]:
    return filter_overlaps(build_windows(row, config), config)


def twin(row: dict[str, Any], given_parameters: dict[str, Any]) -> dict[str, Any]:
    return alm_twin.filtered(alm_twin.built(row, given_parameters), given_parameters)


@given(any_rows, parameters)
@settings(max_examples=150)
def test_the_stages_equal_their_slow_twin(row: dict[str, Any], given_parameters: dict[str, Any]) -> None:
    config = WindowConfig(**given_parameters)
    before = copy.deepcopy(row)
    assert line_of(plain(row, config)) == line_of(twin(row, given_parameters))
    assert row == before


@pytest.mark.skipif(
    not alm_oracle.is_installed() and "CI" not in os.environ,
    reason="nemo-curator 1.4.0 is not installed; `make test` installs it",
)
@given(any_rows, parameters)
@settings(max_examples=150)
def test_the_stages_equal_the_original(row: dict[str, Any], given_parameters: dict[str, Any]) -> None:
    config = WindowConfig(**given_parameters)
    expected = alm_oracle.curated(copy.deepcopy(row), given_parameters)
    found = plain(row, config)
    assert line_of(found) == line_of(expected)
    assert found == expected  # tuples are tuples


@given(any_rows, parameters)
@settings(max_examples=150)
@example({**conversation(1), "audio_filepath": "\u2028 é"}, DEFAULTS)
@example(conversation(2, words=True), DEFAULTS)
@example(conversation(3, words=True), {**DEFAULTS, "drop_fields": "", "overlap_percentage": 0})
@example({"audio_filepath": "a.wav", "audio_sample_rate": 16000, "segments": []}, DEFAULTS)
@example(EQUAL_SHARES, {**DEFAULTS, "target_window_duration": 10, "min_bandwidth": 0})
@example({**conversation(8), "swift_audio_filepath": {"a": float("nan")}}, DEFAULTS)
@example({**moved(conversation(8), 1e-9), "swift_audio_filepath": None, "audio_sample_rate": 16000.5}, DEFAULTS)
@example(moved(conversation(6), 2**53), DEFAULTS)
@example(moved(conversation(6), 10**30), DEFAULTS)
@example(moved(conversation(6), 1e15), DEFAULTS)
@example(moved(conversation(6), 1e-9), DEFAULTS)
@example({**conversation(7), "note": [1e-05, 1e16, 12345678901234567890, -0.0, float("nan"), "\x01\x7f"]}, DEFAULTS)
def test_lines_have_the_values_and_the_order_of_keys_of_the_plain_stages(
    row: dict[str, Any], given_parameters: dict[str, Any]
) -> None:
    config = WindowConfig(**given_parameters)
    for details in (True, False):
        expected = filter_overlaps(build_windows(row, config, loss_details=details), config)
        for text in (line_of(row), json.dumps(row), json.dumps(row, separators=(",", ":"))):
            found = Curator(config, loss_details=details).curate(text.strip().encode())
            assert line_of(json.loads(found.line)) == line_of(expected)


@given(any_rows, parameters)
@settings(max_examples=100)
@example(conversation(2, words=True), DEFAULTS)
@example(conversation(5), {**DEFAULTS, "min_speakers": 0, "overlap_percentage": 100})
def test_both_ways_tell_the_same_facts_and_list_the_same_windows(
    row: dict[str, Any], given_parameters: dict[str, Any]
) -> None:
    curator = Curator(WindowConfig(**given_parameters))
    slow = curator.plainly(row, "a b", 7)
    fast = curator.curate(line_of(row).encode(), "a b", 7)
    assert fast.windows == slow.windows
    for facts in (fast.facts, slow.facts):
        assert facts.numbers.pop("process_entry_time") >= 0
        assert facts.numbers.pop("filter_time") >= 0
    for name in slow.facts.__struct_fields__:
        found, expected = getattr(fast.facts, name), getattr(slow.facts, name)
        assert list(found) == list(expected) if hasattr(expected, "tolist") else found == expected


@pytest.mark.parametrize("words", [False, True])
def test_rows_like_those_of_real_manifests_go_the_fast_way(words: bool) -> None:
    config = WindowConfig()
    for number in range(5):
        row = conversation(number, words=words)
        row["segments"][5]["start"] += 1e-15  # many digits
        row["segments"][7]["end"] = round(row["segments"][7]["end"])
        row["segments"].sort(key=lambda segment: segment["start"])
        expected = line_of(twin(row, DEFAULTS))
        assert json.loads(expected)["filtered_windows"]
        for text in (line_of(row), json.dumps(row), json.dumps(row, separators=(",", ":"))):
            done = Curator(config).quickly(text.strip().encode())
            assert done is not None
            assert line_of(json.loads(done.line)) == expected


@given(talks(), parameters)
@settings(max_examples=100)
def test_only_unusual_rows_and_dropped_speakers_or_bandwidths_go_the_plain_way(
    row: dict[str, Any], given_parameters: dict[str, Any]
) -> None:
    for segment in row["segments"]:
        segment.get("words", []).sort(key=lambda word: word["end"])
    config = WindowConfig(**{**given_parameters, "drop_fields": "words"})
    for note in ({}, {"windows": 1, "note": [1e-05, 12345678901234567890123, "\x01"]}):
        assert Curator(config).quickly(line_of({**row, **note}).encode()) is not None
    for dropped in ("speaker", "words,metrics"):
        assert not suits(WindowConfig(drop_fields=dropped))


def test_without_loss_details_only_the_records_of_lost_windows_are_missing() -> None:
    row, config = conversation(4), WindowConfig()
    whole, bare = build_windows(row, config), build_windows(row, config, loss_details=False)
    assert whole["stats"].pop("lost_win_full_data")
    assert line_of(whole) == line_of(bare)


def test_a_low_sample_rate_is_a_loss_and_no_fault() -> None:
    segments = [{"start": 0, "end": 2}, {"start": 3, "end": 7}]
    row = {"audio_filepath": "a.wav", "segments": segments, "audio_sample_rate": 8000, "x": 1}
    found = plain(row, WindowConfig())
    assert list(found)[:4] == ["audio_filepath", "windows", "stats", "truncation_events"]
    assert (found["stats"]["lost_sr"], found["stats"]["dur_lost_sr"]) == (2, 6)
    assert "x" not in found


def test_sums_are_plain_additions_from_an_integer() -> None:
    row = {"audio_filepath": "a.wav", "audio_sample_rate": 16000}
    total = build_windows({**row, "segments": []}, WindowConfig())["stats"]["total_dur"]
    assert (total, type(total)) == (0, int)
    tenths = [{"start": 0.0, "end": 0.1}] * 10
    assert build_windows({**row, "segments": tenths}, WindowConfig())["stats"]["total_dur"] == 0.9999999999999999
