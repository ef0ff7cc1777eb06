"""Rows of a manifest cut into windows, in the shape that diarised rows have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playhead.curate.config import is_finite
from playhead.curate.cut_config import CutConfig
from playhead.curate.cutting import Cut, Cuts, cut, ticks
from playhead.errors import DataError
from playhead.recipe.words import describe

_OF_THE_WHOLE = ("text", "words")


def cut_row(row: Mapping[str, Any], config: CutConfig) -> dict[str, Any]:
    """The row without its `segments`, with `windows` (each `segments`, `start`, `end`) and `stats`.

    A segment that a window parts has the window's bounds there, and neither `text` nor `words`: which of them fall
    into the part is not known. `stats` are counts and seconds: `total_segments`, `total_dur` of speech, and
    `lost_*`, `dur_lost_*` for every reason.
    """
    segments = row.get("segments", [] if config.by == "hop" else None)
    if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
        raise DataError("segments: is no list of segments", found=describe(segments), expected="a list of objects")
    duration = _duration(row)
    found = cut(segments, duration, config)
    windows = [
        {"segments": _parts(segments, window, duration), "start": window.start, "end": window.end}
        for window in found.windows
    ]
    kept = {name: value for name, value in row.items() if name != "segments"}
    return {**kept, "windows": windows, "stats": _stats(len(segments), found)}


def _parts(segments: list[dict[str, Any]], window: Cut, duration: float | None) -> list[dict[str, Any]]:
    parts = []
    for whole in segments[window.first_segment : window.last_segment + 1]:
        segment = whole if duration is None or whole["end"] <= duration else {**whole, "end": duration}
        early, late = ticks(segment["start"]) < ticks(window.start), ticks(segment["end"]) > ticks(window.end)
        if early and ticks(segment["end"]) <= ticks(window.start):
            continue  # it was over before, and a longer one around it was not
        times = {**({"start": window.start} if early else {}), **({"end": window.end} if late else {})}
        left_out = _OF_THE_WHOLE if times else ()
        parts.append({name: times.get(name, value) for name, value in segment.items() if name not in left_out})
    return parts


def _stats(num_segments: int, found: Cuts) -> dict[str, Any]:
    stats: dict[str, Any] = {"total_segments": num_segments, "total_dur": found.speech_seconds}
    for reason in CutConfig.reasons:
        loss = found.losses.get(reason)
        stats[f"lost_{reason}"] = 0 if loss is None else loss.count
        stats[f"dur_lost_{reason}"] = 0.0 if loss is None else loss.seconds
    return stats


def _duration(row: Mapping[str, Any]) -> float | None:
    value = row.get("duration")
    if value is None:
        return None
    if not is_finite(value) or value < 0:
        found = "a number above 1e300" if isinstance(value, int) and value > 0 else repr(value)
        raise DataError("duration: is no length", found=found, expected="seconds, 0 or more")
    return float(value)
