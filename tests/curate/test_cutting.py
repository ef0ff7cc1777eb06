from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.curate.config import CutConfig
from playhead.curate.cutting import cut, cut_row
from playhead.errors import DataError, RecipeError

Segment = dict[str, Any]
STEP = 0.25  # times of the laws are multiples of it, so that speech can be painted on a strip of cells


def segments_of(*bounds: tuple[float, float]) -> list[Segment]:
    return [{"start": start, "end": end} for start, end in bounds]


def times(found: Any) -> list[tuple[float, float]]:
    return [(window.start, window.end) for window in found.windows]


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[Segment], float | None]:
    bounds, position = [], 0
    for _ in range(draw(st.integers(0, 12))):
        position = max(0, position + draw(st.integers(-4, 12)))
        length = draw(st.integers(0, 20))
        bounds.append((position * STEP, (position + length) * STEP))
        position += length
    bounds.sort()
    duration = draw(st.none() | st.integers(0, 200).map(lambda cells: cells * STEP))
    return segments_of(*bounds), duration


@st.composite
def configs(draw: st.DrawFn) -> CutConfig:
    least = draw(st.integers(1, 20))
    most = least + draw(st.integers(0, 30))
    fields: dict[str, Any] = {"min_seconds": least * STEP, "max_seconds": most * STEP}
    if draw(st.booleans()):
        hop = draw(st.none() | st.integers(1, 60))
        return CutConfig(by="hop", hop_seconds=None if hop is None else hop * STEP, **fields)
    return CutConfig(by="silence", min_silence=draw(st.integers(0, 8)) * STEP, **fields)


def painted(spans: list[tuple[float, float]]) -> set[int]:
    return {cell for start, end in spans for cell in range(round(start / STEP), round(end / STEP))}


@given(recordings(), configs())
def test_windows_come_in_order_within_the_recording_and_are_as_long_as_allowed(
    recording: tuple[list[Segment], float | None], config: CutConfig
) -> None:
    segments, duration = recording
    found = times(cut(segments, duration, config))
    assert found == sorted(found)
    end = max([segment["end"] for segment in segments], default=0) if duration is None else duration
    for start, stop in found:
        assert start >= 0
        assert stop <= end
        assert config.min_seconds <= stop - start <= config.max_seconds
    if config.by == "silence":
        assert all(before[1] <= after[0] for before, after in pairwise(found))


@given(recordings(), configs())
def test_every_moment_of_speech_is_in_a_window_or_in_one_loss(
    recording: tuple[list[Segment], float | None], config: CutConfig
) -> None:
    segments, duration = recording
    found = cut(segments, duration, config)
    speech = painted([(segment["start"], segment["end"]) for segment in segments])
    assert found.speech_seconds == len(speech) * STEP
    lost = speech - painted(times(found))
    past = set() if duration is None else {cell for cell in lost if cell * STEP >= duration}
    seconds = {reason: loss.seconds for reason, loss in found.losses.items()}
    assert sum(seconds.values()) == len(lost) * STEP
    assert seconds.get("past_end", 0) == len(past) * STEP
    if config.by == "silence" or (config.hop_seconds or 0) <= config.max_seconds:
        assert "between_hops" not in seconds
    assert all(loss.count > 0 and loss.seconds > 0 for loss in found.losses.values())


@given(recordings(), configs())
def test_windows_by_silence_begin_and_end_with_speech(
    recording: tuple[list[Segment], float | None], config: CutConfig
) -> None:
    segments, duration = recording
    if config.by == "hop":
        return
    speech = painted(joined(segments, math.inf, config.min_silence))
    for start, stop in times(cut(segments, duration, config)):
        assert round(start / STEP) in speech
        assert round(stop / STEP) - 1 in speech


def joined(segments: list[Segment], end: float, silence: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for segment in segments:
        start, stop = segment["start"], min(segment["end"], end)
        if start < stop:
            if found and start - found[-1][1] < silence:
                found[-1] = (found[-1][0], max(stop, found[-1][1]))
            else:
                found.append((start, stop))
    return found


def slow(segments: list[Segment], duration: float | None, config: CutConfig) -> list[tuple[float, float]]:
    """The twin: one window at a time from what is left of the speech, every possible end written down and ranked."""
    left = joined(segments, math.inf if duration is None else duration, config.min_silence)
    windows = []
    while left:
        start = left[0][0]
        ends = []
        for i, (_, stop) in enumerate(left):
            if config.min_seconds <= stop - start <= config.max_seconds:
                silence = left[i + 1][0] - stop if i + 1 < len(left) else math.inf
                ends.append((silence, i, stop))
        too_far = [(low, stop) for low, stop in left if stop - start > config.max_seconds]
        if ends:
            _, i, stop = max(ends)
            windows.append((start, stop))
            left = left[i + 1 :]
        elif too_far and too_far[0][1] - too_far[0][0] > config.max_seconds > too_far[0][0] - start:
            stop = start + config.max_seconds
            windows.append((start, stop))
            left = [(max(low, stop), high) for low, high in left if high > stop]
        else:
            left = left[1:]
    return windows


@given(recordings(), configs())
def test_cutting_by_silence_agrees_with_its_slow_twin(
    recording: tuple[list[Segment], float | None], config: CutConfig
) -> None:
    if config.by == "silence":
        assert times(cut(*recording, config)) == slow(*recording, config)


def test_the_cut_is_at_the_longest_silence_of_equal_ones_the_later() -> None:
    config = CutConfig(min_seconds=5, max_seconds=20)
    speech = segments_of((0, 6), (8, 10), (13, 15), (16, 18), (21, 30))
    assert times(cut(speech, 60, config)) == [(0, 18), (21, 30)]


def test_a_pause_shorter_than_the_least_silence_is_none() -> None:
    speech = segments_of((0, 6), (6.1, 12), (14, 19))
    found = [times(cut(speech, 60, CutConfig(min_seconds=2, max_seconds=10, min_silence=s))) for s in (0, 0.1, 0.2)]
    assert found == [[(0, 6), (6.1, 12), (14, 19)], [(0, 6), (6.1, 12), (14, 19)], [(0, 10), (10, 19)]]


def test_speech_above_the_maximum_is_parted_and_a_short_rest_is_counted() -> None:
    found = cut(segments_of((1, 66)), 70, CutConfig(min_seconds=10, max_seconds=30))
    assert times(found) == [(1, 31), (31, 61)]
    assert {reason: (loss.count, loss.seconds) for reason, loss in found.losses.items()} == {"too_short": (1, 5.0)}


def test_a_hop_longer_than_a_window_counts_what_it_leaps_over() -> None:
    config = CutConfig(by="hop", min_seconds=5, max_seconds=10, hop_seconds=15)
    found = cut(segments_of((8, 20), (44, 49)), 49, config)
    assert times(found) == [(0, 10), (15, 25), (30, 40)]
    assert {reason: loss.seconds for reason, loss in found.losses.items()} == {"between_hops": 6.0, "too_short": 4.0}


def test_windows_by_hop_need_no_segments() -> None:
    found = cut([], 65.5, CutConfig(by="hop", min_seconds=5, max_seconds=30))
    assert [(*window,) for window in found.windows] == [(0, 30, 0, -1), (30, 60, 0, -1), (60, 65.5, 0, -1)]


def test_a_row_has_its_windows_with_their_segments_and_what_was_lost() -> None:
    segments = [
        {"start": 0.1234567, "end": 4.0, "text": "one", "id": 1},
        {"start": 5.0, "end": 18.0, "text": "two"},
        {"start": 30.0, "end": 30.5, "text": "three"},
        {"start": 50.0, "end": 61.0, "text": "four"},
    ]
    row = {"audio_filepath": "a.wav", "duration": 60.0, "segments": segments, "lang": "en"}
    found = cut_row(row, CutConfig(min_seconds=2, max_seconds=10))
    assert list(found) == ["audio_filepath", "duration", "lang", "windows", "stats"]
    assert found["windows"] == [
        {"segments": [segments[0]], "start": 0.123457, "end": 4.0},
        {"segments": [{"start": 5.0, "end": 15.0}], "start": 5.0, "end": 15.0},
        {"segments": [{"start": 15.0, "end": 18.0}], "start": 15.0, "end": 18.0},
        {"segments": [{"start": 50.0, "end": 60.0, "text": "four"}], "start": 50.0, "end": 60.0},
    ]
    assert found["stats"] == {
        "total_segments": 4,
        "total_dur": 28.376543,
        "lost_too_short": 1,
        "dur_lost_too_short": 0.5,
        "lost_between_hops": 0,
        "dur_lost_between_hops": 0.0,
        "lost_past_end": 1,
        "dur_lost_past_end": 1.0,
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"by": "chance"}, "by: unknown method"),
        ({"min_seconds": 0}, "min_seconds: is not a valid value"),
        ({"max_seconds": float("nan")}, "max_seconds: is not a valid value"),
        ({"min_seconds": 5, "max_seconds": 4}, "min_seconds is above max_seconds"),
        ({"min_silence": -1}, "min_silence: is not a valid value"),
        ({"max_seconds": True}, "max_seconds: is not a valid value"),
        ({"hop_seconds": 3}, "hop_seconds requires `by: hop`"),
        ({"by": "hop", "hop_seconds": "3"}, "hop_seconds: is not a valid value"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        CutConfig(**fields)


@pytest.mark.parametrize(
    ("segments", "said"),
    [
        ([{"start": 1.0}], r"segments\[0\]\.end: is not a time"),
        ([{"start": "1", "end": 2}], r"segments\[0\]\.start: is not a time"),
        ([{"start": float("nan"), "end": 2}], r"segments\[0\]\.start: is not a time"),
        ([{"start": 2, "end": 1}], r"segments\[0\]: ends before it starts"),
        ([{"start": 2, "end": 3}, {"start": 1, "end": 2}], r"segments\[1\]: starts before the previous segment"),
        ({"start": 1}, "segments: is not a list of segments"),
        (None, "segments: is not a list of segments"),
    ],
)
def test_broken_segments_are_refused_by_place(segments: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        cut_row({"segments": segments}, CutConfig())
    with pytest.raises(DataError, match="duration: is not a length"):
        cut_row({"segments": [], "duration": "long"}, CutConfig())


@pytest.mark.parametrize("by", ["silence", "hop"])
@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"segments": [{"start": 0, "end": 1e9}]}, "segments: too many windows"),
        ({"duration": 1e9, "segments": [{"start": 0, "end": 1e9}]}, "duration: too many windows"),
        ({"duration": 10**400, "segments": []}, "duration: is not a length"),
    ],
)
def test_times_in_another_unit_are_refused_before_memory_is_full(by: Any, row: dict[str, Any], field: str) -> None:
    with pytest.raises(DataError, match=field):
        cut_row(row, CutConfig(by=by))
