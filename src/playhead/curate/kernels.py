"""Kernels: which segments make a window and its speakers; which windows are kept, and how much they overlap.

Times are floats with flags for whole durations: in Python a sum of whole numbers is whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from playhead.curate.config import WINDOW_REASONS
from playhead.types import BoolArray, IntArray, kernel

FloatArray = npt.NDArray[np.float64]

# Codes of speakers that do not count as one; names count from FIRST_NAME.
MISSING, NULL, EMPTY, NO_SPEAKER, FIRST_NAME = range(5)
# Whether the segment at which a window ended was cut, and whether the part that is left was taken.
NOT_CUT, PART_DROPPED, PART_TAKEN = range(3)

_NUM_REASONS = len(WINDOW_REASONS)
_BW, _SR, _SPK, _WIN, _NO_SPKR, _NEXT_BW = range(_NUM_REASONS)
_SHOWN_SPEAKERS = 5


@kernel
def grow_windows(
    starts: FloatArray,
    ends: FloatArray,
    low: BoolArray,
    speakers: IntArray,
    num_codes: int,
    max_duration: float,
    max_speakers: int,
    truncation: bool,
) -> IntArray:
    """Of each segment as a start: the segment at which its window ended, the number taken whole, and the cut.

    Returns no columns where an end is before its start or the segments are not sorted.
    """
    count = starts.size
    grown = np.zeros((3, count), dtype=np.int64)
    last_start = np.full(num_codes, -1, dtype=np.int64)  # the last start whose window had this speaker
    for i in range(count):
        if ends[i] < starts[i] or (i > 0 and starts[i] < starts[i - 1]):
            return grown[:, :0]
    for first in range(count):
        if low[first]:
            continue
        limit = starts[first] + max_duration
        num_speakers = 0
        for at in range(first, count):
            grown[0, first] = at
            if low[at]:
                break
            over = ends[at] - starts[first] > max_duration
            if over:
                if not truncation or starts[at] >= limit:
                    break
                grown[2, first] = PART_DROPPED
            speaker = speakers[at]
            if speaker == NO_SPEAKER:
                break
            if speaker >= FIRST_NAME and last_start[speaker] != first:
                if num_speakers + 1 > max_speakers:
                    break
                num_speakers += 1
                last_start[speaker] = first
            if over:
                grown[2, first] = PART_TAKEN
                break
            grown[1, first] += 1
    return grown


@kernel
def judge_windows(
    starts: FloatArray,
    ends: FloatArray,
    whole: BoolArray,
    low: BoolArray,
    speakers: IntArray,
    num_codes: int,
    grown: IntArray,
    parts: IntArray,
    part_ends: FloatArray,
    part_whole: BoolArray,
    durations: tuple[float, float],
    bounds: tuple[int, int, int],
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, IntArray, FloatArray, BoolArray, IntArray, FloatArray]:
    """The runs of segments that are windows, and those that are lost because no window starts there; of windows, the
    starts, the ends, how many speak, and the seconds of those who speak most, with flags; by reason how many starts are
    lost, and how many seconds.

    A run is its first segment, the one after the last, the part that it takes, numbered after all segments, or -1,
    and the segment at which it ended. `parts` are the numbers of the starts' parts, or -1. `bounds` are the fewest
    segments, the fewest and the most speakers.
    """
    count, num_windows, num_lost = starts.size, 0, 0
    windows, lost_runs = np.empty((count, 4), dtype=np.int64), np.empty((count, 4), dtype=np.int64)
    speaker_counts, window_starts, window_ends = np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros(count)
    seconds = np.zeros((count, _SHOWN_SPEAKERS))
    seconds_whole = np.zeros((count, _SHOWN_SPEAKERS), dtype=np.bool_)
    lost, lost_seconds = np.zeros(_NUM_REASONS, dtype=np.int64), np.zeros(_NUM_REASONS)
    total, total_whole = np.zeros(num_codes), np.zeros(num_codes, dtype=np.bool_)
    order, last_start = np.zeros(num_codes, dtype=np.int64), np.full(num_codes, -1, dtype=np.int64)
    for first in range(count):
        own = ends[first] - starts[first]
        if low[first]:
            _lose(_BW, own, lost, lost_seconds)
            continue
        after, part = first + grown[1, first], parts[first]
        end = part_ends[part] if part >= 0 else ends[max(first, after - 1)]
        size = grown[1, first] + (part >= 0)
        if not durations[0] <= end - starts[first] <= durations[1] or size < bounds[0]:
            _lose(_WIN, own, lost, lost_seconds)
            stop = grown[0, first]
            _note_run(lost_runs[num_lost], first, after, part, count, stop)
            num_lost += 1
            if speakers[stop] == MISSING or speakers[stop] == NO_SPEAKER:
                _lose(_NO_SPKR, own, lost, lost_seconds)
            elif low[stop]:
                _lose(_NEXT_BW, own, lost, lost_seconds)
            continue
        num_speakers = 0
        for at in range(first, first + size):
            speaker = speakers[at]
            if speaker < FIRST_NAME:
                continue
            if last_start[speaker] != first:
                last_start[speaker] = first
                total[speaker], total_whole[speaker] = 0.0, True
                order[num_speakers] = speaker
                num_speakers += 1
            total[speaker] += (ends[at] if at < after else part_ends[part]) - starts[at]
            total_whole[speaker] &= whole[at] if at < after else part_whole[part]
        if not bounds[1] <= num_speakers <= bounds[2]:
            _lose(_SPK, own, lost, lost_seconds)
            continue
        _sort_by_seconds(order, num_speakers, total)
        for i in range(min(_SHOWN_SPEAKERS, num_speakers)):
            seconds[num_windows, i] = total[order[i]]
            seconds_whole[num_windows, i] = total_whole[order[i]]
        speaker_counts[num_windows] = num_speakers
        window_starts[num_windows], window_ends[num_windows] = starts[first], end
        _note_run(windows[num_windows], first, after, part, count, grown[0, first])
        num_windows += 1
    return (
        windows[:num_windows],
        lost_runs[:num_lost],
        window_starts[:num_windows],
        window_ends[:num_windows],
        speaker_counts[:num_windows],
        seconds[:num_windows],
        seconds_whole[:num_windows],
        lost,
        lost_seconds,
    )


@kernel
def _note_run(run: IntArray, first: int, after: int, part: int, count: int, stop: int) -> None:
    run[0], run[1], run[2], run[3] = first, after, part if part < 0 else count + part, stop


@kernel
def _lose(reason: int, seconds: float, lost: IntArray, lost_seconds: FloatArray) -> None:
    lost[reason] += 1
    lost_seconds[reason] += seconds


@kernel
def _sort_by_seconds(order: IntArray, count: int, total: FloatArray) -> None:
    """Speakers with the most seconds first; with equal seconds, in order of first speech."""
    for i in range(1, count):
        speaker, j = order[i], i
        while j > 0 and total[order[j - 1]] < total[speaker]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = speaker


_NEAR_SECONDS = 1e-5  # nearer than this in both times, two windows may be equal to six decimals


def overlaps_of(times: list[tuple[float, float]]) -> FloatArray:
    """The largest overlap ratio of each window with any other, in the order of their times, given as (end, start)."""
    starts = np.array([start for _, start in times], dtype=np.float64)
    ends = np.array([end for end, _ in times], dtype=np.float64)
    return closest_overlaps(starts, ends, sort_by_times(starts, ends))


@kernel
def sort_by_times(starts: FloatArray, ends: FloatArray) -> IntArray:
    """The order by start and end; of equals, the one that comes first. Quick for what is almost sorted."""
    order = np.arange(starts.size)
    for i in range(1, starts.size):
        one, j = order[i], i
        while j > 0:
            before = order[j - 1]
            if starts[before] < starts[one] or (starts[before] == starts[one] and ends[before] <= ends[one]):
                break
            order[j] = before
            j -= 1
        order[j] = one
    return order


@kernel
def filter_windows(
    starts: FloatArray, ends: FloatArray, threshold: float, target: float
) -> tuple[IntArray, BoolArray, FloatArray, FloatArray, bool]:
    """The windows that stay, in the order of their times; which ones they are; the largest overlaps of all, and of
    those that stay; and whether two windows may have the same times if rounded.
    """
    order = sort_by_times(starts, ends)
    stays = np.ones(starts.size, dtype=np.bool_)
    near = False
    for a in range(starts.size):
        i = order[a]
        duration = ends[i] - starts[i]
        near = near or _has_near(starts, ends, order, a)
        if not stays[i]:
            continue
        for b in range(a + 1, starts.size):
            j = order[b]
            if not stays[j]:
                continue
            if starts[j] >= ends[i]:
                break
            other = ends[j] - starts[j]
            shared = max(0.0, min(ends[i], ends[j]) - max(starts[i], starts[j]))
            shorter = min(duration, other)
            ratio = shared / shorter if shorter != 0.0 else 0.0
            if not ratio >= threshold:
                continue
            far, other_far = abs(duration - target), abs(other - target)
            if far < other_far or (far == other_far and duration >= other):
                stays[j] = False
            else:
                stays[i] = False
                break
    staying = order[stays[order]]
    overlaps, kept_overlaps = closest_overlaps(starts, ends, order), closest_overlaps(starts, ends, staying)
    return staying, stays, overlaps, kept_overlaps, near


@kernel
def _has_near(starts: FloatArray, ends: FloatArray, order: IntArray, a: int) -> bool:
    """Whether a window of an order may round to the same times as one that comes after it."""
    for b in range(a + 1, order.size):
        if starts[order[b]] - starts[order[a]] > _NEAR_SECONDS:
            return False
        if abs(ends[order[b]] - ends[order[a]]) <= _NEAR_SECONDS:
            return True
    return False


@kernel
def closest_overlaps(starts: FloatArray, ends: FloatArray, order: IntArray) -> FloatArray:
    """The largest overlap ratio of each window of an order with any other of it, in that order."""
    largest = np.zeros(order.size)
    for a in range(order.size):
        i = order[a]
        for b in range(a + 1, order.size):
            j = order[b]
            if starts[j] >= ends[i]:
                break
            shorter = min(ends[i] - starts[i], ends[j] - starts[j])
            if shorter > 0.0:
                ratio = (min(ends[i], ends[j]) - starts[j]) / shorter
                largest[a] = max(largest[a], ratio)
                largest[b] = max(largest[b], ratio)
    return largest
