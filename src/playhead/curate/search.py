"""Kernels of the builder: which segments make a window, and who speaks in it.

Numbers arrive as floats beside a flag that says which of them are whole: a sum of whole numbers is one in Python.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from playhead.curate.reasons import WINDOW_REASONS
from playhead.types import BoolArray, IntArray, kernel

FloatArray = npt.NDArray[np.float64]

LOW_BANDWIDTH, NO_WINDOW, OTHER_SPEAKERS, WINDOW = 0, 1, 2, 3
REASONS = tuple(WINDOW_REASONS)
_BW, _SPK, _WIN, _NO_SPKR, _NEXT_BW = 0, 2, 3, 4, 5
# Ids of speakers that are not; real ones count from 1. A missing name differs from an empty one only as the next.
MISSING_ID, NOBODY_ID, NO_SPEAKER_ID = -2, -1, 0


@kernel
def grow_windows(
    starts: FloatArray,
    ends: FloatArray,
    low: BoolArray,
    speakers: IntArray,
    num_speakers: int,
    max_duration: float,
    max_speakers: int,
    truncation: bool,
    stops: IntArray,
    taken: IntArray,
    events: IntArray,
) -> tuple[BoolArray, int]:
    """Fill in from each segment on: where it stopped, and how many segments it took whole; and in `events` the
    segments from which on a truncation was tried.

    Tells which take a part of the one at which they stopped, and the number of events.
    """
    count = starts.size
    parts, num_events = np.zeros(count, dtype=np.bool_), 0
    stops[:], taken[:] = 0, 0
    last_seen = np.full(num_speakers + 1, -1, dtype=np.int64)
    for first in range(count):
        if low[first]:
            continue
        limit = starts[first] + max_duration
        heard = 0
        for at in range(first, count):
            stops[first] = at
            if low[at]:
                break
            over = ends[at] - starts[first] > max_duration
            if over:
                if not truncation or starts[at] >= limit:
                    break
                events[num_events] = first
                num_events += 1
            speaker = speakers[at]
            if speaker == NO_SPEAKER_ID:
                break
            if speaker > 0 and last_seen[speaker] != first:
                if heard + 1 > max_speakers:
                    break
                heard += 1
                last_seen[speaker] = first
            if over:
                parts[first] = True
                break
            taken[first] += 1
    return parts, num_events


@kernel
def count_words(limits: FloatArray, word_ends: FloatArray, bounds: IntArray, which: IntArray) -> tuple[IntArray, bool]:
    """How many words of a segment end by each limit, and whether they are always the first ones.

    `bounds` cuts `word_ends` into the words of segments; `which` says which segment a limit is for.
    """
    kept = np.zeros(limits.size, dtype=np.int64)
    for i in range(limits.size):
        number = 0
        for at in range(bounds[which[i]], bounds[which[i] + 1]):
            if word_ends[at] <= limits[i]:
                if at - bounds[which[i]] != number:
                    return kept, False
                number += 1
        kept[i] = number
    return kept, True


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


@kernel
def judge_windows(
    starts: FloatArray,
    ends: FloatArray,
    whole: BoolArray,
    low: BoolArray,
    speakers: IntArray,
    num_speakers: int,
    stops: IntArray,
    taken: IntArray,
    part_of: IntArray,
    part_ends: FloatArray,
    part_whole: BoolArray,
    durations: tuple[float, float],
    bounds: tuple[int, int, int],
    kinds: IntArray,
    firsts: IntArray,
    voices: IntArray,
    seconds: FloatArray,
    seconds_whole: BoolArray,
    lost: IntArray,
    lost_seconds: FloatArray,
) -> tuple[int, float]:
    """Fill in what becomes of each start. Of those that make windows: which they are, how many speak, the speakers'
    seconds, most first, with their flags. And by reason how many starts are lost, and how many seconds.

    `part_of` is the number of a start's part, or -1. `bounds` are the least segments, and the least and most speakers.
    Tells the number of windows and the seconds of all segments.
    """
    count, num_windows, all_seconds = starts.size, 0, 0.0
    seconds[:], seconds_whole[:] = 0.0, False
    lost[:], lost_seconds[:] = 0, 0.0
    total, total_whole = np.zeros(num_speakers + 1), np.zeros(num_speakers + 1, dtype=np.bool_)
    last_seen = np.full(num_speakers + 1, -1, dtype=np.int64)
    order = np.zeros(num_speakers + 1, dtype=np.int64)
    for first in range(count):
        own = ends[first] - starts[first]
        all_seconds += own
        if low[first]:
            kinds[first] = LOW_BANDWIDTH
            _lose(_BW, own, lost, lost_seconds)
            continue
        part = part_of[first]
        after = first + taken[first]
        end = ends[first]
        if part >= 0:
            end = part_ends[part]
        elif taken[first]:
            end = ends[after - 1]
        size = taken[first] + (part >= 0)
        if not durations[0] <= end - starts[first] <= durations[1] or size < bounds[0]:
            kinds[first] = NO_WINDOW
            _lose(_WIN, own, lost, lost_seconds)
            stop = stops[first]
            if speakers[stop] in (MISSING_ID, NO_SPEAKER_ID):
                _lose(_NO_SPKR, own, lost, lost_seconds)
            elif low[stop]:
                _lose(_NEXT_BW, own, lost, lost_seconds)
            continue
        heard = 0
        for at in range(first, first + size):
            speaker = speakers[at]
            if speaker < 0:
                continue
            if last_seen[speaker] != first:
                last_seen[speaker] = first
                total[speaker], total_whole[speaker] = 0.0, True
                order[heard] = speaker
                heard += 1
            if at < after:
                total[speaker] += ends[at] - starts[at]
                total_whole[speaker] &= whole[at]
            else:
                total[speaker] += part_ends[part] - starts[at]
                total_whole[speaker] &= part_whole[part]
        if not bounds[1] <= heard <= bounds[2]:
            kinds[first] = OTHER_SPEAKERS
            _lose(_SPK, own, lost, lost_seconds)
            continue
        kinds[first] = WINDOW
        _sort_by_seconds(order, heard, total)
        for i in range(min(5, heard)):
            seconds[num_windows, i] = total[order[i]]
            seconds_whole[num_windows, i] = total_whole[order[i]]
        firsts[num_windows], voices[num_windows] = first, heard
        num_windows += 1
    return num_windows, all_seconds
