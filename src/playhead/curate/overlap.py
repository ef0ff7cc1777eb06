"""The windows of a row -> those that overlap less than a percentage, the nearest to the target duration kept."""

from __future__ import annotations

from playhead.curate.build import add_up
from playhead.curate.config import WindowConfig
from playhead.curate.rows import CurateRow

Times = tuple[float, float]  # end, start

_WITHOUT_WINDOWS: CurateRow = {
    "filtered_windows": [],
    "filtered_dur": 0.0,
    "filtered_dur_list": [],
    "total_dur_window": 0.0,
    "total_dur_list_window": [],
    "total_dur_list_window_timestamps": [],
    "filtered": [],
    "manifest_filepath": None,
    "swift_filepath": None,
}


def filter_overlaps(row: CurateRow, config: WindowConfig) -> CurateRow:
    """The row with `filtered_windows` and their statistics.

    Law: equal to the row that NeMo Curator's ALM overlap stage makes from the result of `build_windows`, in values,
    kinds of numbers and order of keys. Windows of equal times are kept or dropped together.
    """
    times = [times_of(window) for window in row.get("windows") or []]
    kept = keep_apart(times, config.overlap_percentage / 100, config.target_duration)
    return add_kept(row, times, kept, among(times, kept))


def add_kept(row: CurateRow, times: list[Times], kept: list[Times], numbers: list[int]) -> CurateRow:
    """The row with the windows that are kept, given by their times, in order, and by their numbers."""
    if not times:
        return {**row, **{key: row.get(key, _copied(value)) for key, value in _WITHOUT_WINDOWS.items()}}
    found = dict(row)
    durations = [end - start for end, start in times]
    found["total_dur_window"] = add_up(durations)
    found["total_dur_list_window"] = durations
    found["total_dur_list_window_timestamps"] = times
    found["filtered"] = kept
    found["filtered_windows"] = [row["windows"][i] for i in numbers]
    kept_durations = [end - start for end, start in kept]
    found["filtered_dur"] = add_up(kept_durations)
    found["filtered_dur_list"] = kept_durations
    stats = row.get("stats")
    found["manifest_filepath"] = stats.get("manifest_path") if isinstance(stats, dict) else None
    found["swift_filepath"] = stats.get("swift_path") if isinstance(stats, dict) else None
    return found


def _copied(value: object) -> object:
    return list(value) if isinstance(value, list) else value


def times_of(window: CurateRow) -> Times:
    return window["segments"][-1]["end"], window["segments"][0]["start"]


def among(times: list[Times], kept: list[Times]) -> list[int]:
    """Which windows have the times of a kept one, to six decimals."""
    wanted = {(round(end, 6), round(start, 6)) for end, start in kept}
    return [i for i, (end, start) in enumerate(times) if (round(end, 6), round(start, 6)) in wanted]


def keep_apart(times: list[Times], threshold: float, target: float) -> list[Times]:
    """The times that are kept, by start and end; of two that overlap too much, the one nearer to the target is kept."""
    ordered = sorted(times, key=lambda pair: (pair[1], pair[0]))
    gone = [False] * len(ordered)
    for i, one in enumerate(ordered):
        if gone[i]:
            continue
        for j in range(i + 1, len(ordered)):
            if gone[j]:
                continue
            if ordered[j][1] >= one[0]:
                break
            if not overlap_ratio(one, ordered[j]) >= threshold:  # written this way so that a NaN ratio is handled
                continue
            if _first_stays(one[0] - one[1], ordered[j][0] - ordered[j][1], target):
                gone[j] = True
            else:
                gone[i] = True
                break
    return [pair for pair, dropped in zip(ordered, gone, strict=True) if not dropped]


def _first_stays(first: float, second: float, target: float) -> bool:
    """The nearer to the target; if equally near the longer; of equals the first."""
    if abs(first - target) != abs(second - target):
        return abs(first - target) < abs(second - target)
    return first >= second


def overlap_ratio(one: Times, other: Times) -> float:
    """The shared time as a fraction of the shorter of two; 0 if that has no length."""
    shared = max(0, min(one[0], other[0]) - max(one[1], other[1]))
    shorter = min(one[0] - one[1], other[0] - other[1])
    return shared / shorter if shorter else 0
