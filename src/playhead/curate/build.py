"""A diarised recording -> every window of about the target duration that a segment can begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from playhead.curate.config import WINDOW_REASONS, WindowConfig
from playhead.curate.rows import CurateRow, check_row, check_words

NO_SPEAKER = "no-speaker"
LEAST_SEGMENTS = 2
LOSS_NAMES = [(f"lost_{reason}", f"dur_lost_{reason}") for reason in WINDOW_REASONS]
_SHOWN_SPEAKERS = 5


def build_windows(row: CurateRow, config: WindowConfig, *, loss_details: bool = True) -> CurateRow:
    """The row with its `windows`, `stats` and `truncation_events`.

    Law: equal to the row that NeMo Curator's ALM builder makes, in values, kinds of numbers and order of keys; without
    `loss_details` equal but for `lost_win_full_data`. A row that it could not process raises a DataError.
    """
    check_row(row)
    segments = row["segments"]
    stats = fresh_stats(row)
    if row["audio_sample_rate"] < config.min_sample_rate:
        stats.update(lost_sr=len(segments), dur_lost_sr=stats["total_dur"])
        windows: list[CurateRow] = []
        events = 0
        others = {"audio_filepath": row["audio_filepath"]}
    else:
        windows, events = _all_windows(segments, config, stats)
        others = without(row, config.dropped_top_level)
    if not loss_details:
        del stats["lost_win_full_data"]
    return {**others, "windows": windows, "stats": stats, "truncation_events": events}


def fresh_stats(row: CurateRow) -> CurateRow:
    """The initial stats of a row, without losses."""
    segments = row["segments"]
    stats: CurateRow = {
        "total_segments": len(segments),
        "total_dur": add_up([segment["end"] - segment["start"] for segment in segments]),
        "swift_path": row.get("swift_audio_filepath", ""),
        "audio_sample_rate": row["audio_sample_rate"],
    }
    for name, seconds_name in LOSS_NAMES:
        stats[name], stats[seconds_name] = 0, 0.0
    stats["lost_win_full_data"] = []
    return stats


def add_up(numbers: Iterable[float]) -> float:
    """Plain additions from left to right, from the integer 0: Python 3.12's `sum` differs in the last digits."""
    total: float = 0
    for number in numbers:
        total = total + number
    return total


def _all_windows(segments: list[CurateRow], config: WindowConfig, stats: CurateRow) -> tuple[list[CurateRow], int]:
    windows: list[CurateRow] = []
    events = 0
    for first, segment in enumerate(segments):
        if bandwidth(segment) < config.min_bandwidth:
            _lose(stats, "bw", segment)
            continue
        grown = _grow(segments, first, config)
        events += grown.truncated
        if not _is_window(grown, segment["start"], config):
            _lose(stats, "win", segment)
            _blame_next(stats, segments[grown.stop], segment, config)
            stats["lost_win_full_data"].append(_record(segments, first, grown, config))
            continue
        durations = speaker_durations(grown.segments)
        if not config.min_speakers <= len(durations) <= config.max_speakers or NO_SPEAKER in durations:
            _lose(stats, "spk", segment)
            continue
        longest = sorted(durations.values(), reverse=True)[:_SHOWN_SPEAKERS]
        shown = longest + [0.0] * (_SHOWN_SPEAKERS - len(longest))
        windows.append({"segments": grown.segments, "speaker_durations": shown})
    return windows, events


@dataclass(frozen=True)
class _Grown:
    """The segments taken from a start, without dropped fields; the segment at which it stopped, or the last."""

    segments: list[CurateRow]
    end: float
    stop: int
    truncated: bool


def _grow(segments: list[CurateRow], first: int, config: WindowConfig) -> _Grown:
    taken: list[CurateRow] = []
    start, end = segments[first]["start"], segments[first]["end"]
    limit = start + config.max_duration
    for at in range(first, len(segments)):
        segment = segments[at]
        if bandwidth(segment) < config.min_bandwidth:
            return _Grown(taken, end, at, False)
        if segment["end"] - start > config.max_duration:
            if not config.truncation or segment["start"] >= limit:
                return _Grown(taken, end, at, False)
            words = [word for word in check_words(segment, f"segments[{at}]") if word["end"] <= limit]
            if _fits(taken, segment, config):
                taken.append(cut_segment(segment, words, config.dropped))
                end = taken[-1]["end"]
            return _Grown(taken, end, at, True)
        if not _fits(taken, segment, config):
            return _Grown(taken, end, at, False)
        taken.append(without(segment, config.dropped))
        end = segment["end"]
    return _Grown(taken, end, len(segments) - 1, False)


def _fits(taken: list[CurateRow], segment: CurateRow, config: WindowConfig) -> bool:
    durations = speaker_durations([*taken, segment])
    return len(durations) <= config.max_speakers and NO_SPEAKER not in durations


def cut_segment(segment: CurateRow, words: list[CurateRow], dropped: frozenset[str]) -> CurateRow:
    """A segment with only these of its words: it ends with the last of them, or where it starts if there are none."""
    part = without(segment, dropped)
    if "words" not in dropped:
        part["words"] = words
    if "text" not in dropped:
        part["text"] = " ".join([word["word"] for word in words if word.get("word")]) if words else ""
    part["end"] = words[-1]["end"] if words else segment["start"]
    return part


def _is_window(grown: _Grown, start: float, config: WindowConfig) -> bool:
    if not config.min_duration <= grown.end - start <= config.max_duration:
        return False
    enough = all(bandwidth(segment) >= config.min_bandwidth for segment in grown.segments)
    return len(grown.segments) >= LEAST_SEGMENTS and enough


def _lose(stats: CurateRow, reason: str, segment: CurateRow) -> None:
    stats[f"lost_{reason}"] += 1
    stats[f"dur_lost_{reason}"] += segment["end"] - segment["start"]


def _blame_next(stats: CurateRow, next_segment: CurateRow, segment: CurateRow, config: WindowConfig) -> None:
    """Only a missing `speaker` counts as none here; an empty one does not."""
    if next_segment.get("speaker", NO_SPEAKER) == NO_SPEAKER:
        _lose(stats, "no_spkr", segment)
    elif bandwidth(next_segment) < config.min_bandwidth:
        _lose(stats, "next_seg_bm", segment)


def _record(segments: list[CurateRow], first: int, grown: _Grown, config: WindowConfig) -> CurateRow:
    return {
        "index": first,
        "window_segs": grown.segments,
        "next_seg": without(segments[grown.stop], config.dropped),
        "prev_seg": without(segments[max(first - 1, 0)], config.dropped),
    }


def without(fields: CurateRow, names: frozenset[str]) -> CurateRow:
    if names.isdisjoint(fields):
        return fields.copy()
    return {key: value for key, value in fields.items() if key not in names}


def bandwidth(segment: CurateRow) -> float:
    found: float = segment.get("metrics", {}).get("bandwidth", 0)
    return found


def speaker_durations(segments: list[CurateRow]) -> dict[Any, float]:
    """Seconds by speaker, in order of first speech; segments with no speaker, or an empty one, do not count."""
    durations: dict[Any, float] = {}
    for segment in segments:
        speaker = segment.get("speaker")
        if speaker:
            durations[speaker] = durations.get(speaker, 0) + (segment["end"] - segment["start"])
    return durations
