"""Kernels: which segments make a window, who speaks in it, and which windows stay.

Numbers arrive as floats beside a flag that says which of them are whole: a sum of whole numbers is one in Python.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from playhead.types import BoolArray, IntArray, kernel

FloatArray = npt.NDArray[np.float64]

LOW_BANDWIDTH, NO_WINDOW, OTHER_SPEAKERS, WINDOW = 0, 1, 2, 3
NOBODY, NO_SPEAKER_ID = -1, 0  # ids of speakers that are not; real ones count from 1


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
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """From each segment on: where it stopped, how many whole segments it took, 0 or 1 truncation, 0 or 1 part taken."""
    count = starts.size
    stops, taken = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    events, parts = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    last_seen = np.full(num_speakers + 1, -1, dtype=np.int64)
    for first in range(count):
        if low[first]:
            continue
        limit = starts[first] + max_duration
        heard = 0
        stops[first] = count - 1
        for at in range(first, count):
            stops[first] = at
            if low[at]:
                break
            over = ends[at] - starts[first] > max_duration
            if over:
                if not truncation or starts[at] >= limit:
                    break
                events[first] = 1
            speaker = speakers[at]
            if speaker == NO_SPEAKER_ID:
                break
            if speaker != NOBODY and last_seen[speaker] != first:
                if heard + 1 > max_speakers:
                    break
                heard += 1
                last_seen[speaker] = first
            if over:
                parts[first] = 1
                break
            taken[first] += 1
    return stops, taken, events, parts


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
def judge_windows(
    starts: FloatArray,
    ends: FloatArray,
    whole: BoolArray,
    low: BoolArray,
    speakers: IntArray,
    num_speakers: int,
    taken: IntArray,
    parts: IntArray,
    part_ends: FloatArray,
    part_whole: BoolArray,
    min_duration: float,
    max_duration: float,
    least_segments: int,
    min_speakers: int,
    max_speakers: int,
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """What became of each start, how many speak there, and its speakers' seconds, most first, with their flags."""
    count = starts.size
    kinds, heard = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    seconds, seconds_whole = np.zeros((count, 5)), np.zeros((count, 5), dtype=np.bool_)
    total, total_whole = np.zeros(num_speakers + 1), np.zeros(num_speakers + 1, dtype=np.bool_)
    last_seen = np.full(num_speakers + 1, -1, dtype=np.int64)
    order = np.zeros(num_speakers + 1, dtype=np.int64)
    for first in range(count):
        if low[first]:
            kinds[first] = LOW_BANDWIDTH
            continue
        after = first + taken[first]
        end = ends[first]
        if parts[first]:
            end = part_ends[first]
        elif taken[first]:
            end = ends[after - 1]
        duration = end - starts[first]
        if not min_duration <= duration <= max_duration or taken[first] + parts[first] < least_segments:
            kinds[first] = NO_WINDOW
            continue
        for at in range(first, after + parts[first]):
            speaker = speakers[at]
            if speaker == NOBODY:
                continue
            if last_seen[speaker] != first:
                last_seen[speaker] = first
                total[speaker], total_whole[speaker] = 0.0, True
                order[heard[first]] = speaker
                heard[first] += 1
            if at < after:
                total[speaker] += ends[at] - starts[at]
                total_whole[speaker] &= whole[at]
            else:
                total[speaker] += part_ends[first] - starts[at]
                total_whole[speaker] &= part_whole[first]
        if not min_speakers <= heard[first] <= max_speakers:
            kinds[first] = OTHER_SPEAKERS
            continue
        kinds[first] = WINDOW
        for i in range(1, heard[first]):  # equal seconds stay in order of first speech
            speaker = order[i]
            j = i
            while j > 0 and total[order[j - 1]] < total[speaker]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = speaker
        for i in range(min(5, heard[first])):
            seconds[first, i] = total[order[i]]
            seconds_whole[first, i] = total_whole[order[i]]
    return kinds, heard, seconds, seconds_whole


@kernel
def stay_apart(starts: FloatArray, ends: FloatArray, threshold: float, target: float) -> BoolArray:
    """Which of some windows, sorted by start and end, stay."""
    count = starts.size
    stays = np.ones(count, dtype=np.bool_)
    for i in range(count):
        if not stays[i]:
            continue
        duration = ends[i] - starts[i]
        for j in range(i + 1, count):
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
    return stays


@kernel
def closest_overlaps(starts: FloatArray, ends: FloatArray) -> FloatArray:
    """The largest overlap ratio of each of some windows, sorted by start and end, with any other of them."""
    count = starts.size
    largest = np.zeros(count)
    for i in range(count):
        for j in range(i + 1, count):
            if starts[j] >= ends[i]:
                break
            shorter = min(ends[i] - starts[i], ends[j] - starts[j])
            if shorter > 0.0:
                ratio = (min(ends[i], ends[j]) - starts[j]) / shorter
                largest[i] = max(largest[i], ratio)
                largest[j] = max(largest[j], ratio)
    return largest


@kernel
def has_near_twins(starts: FloatArray, ends: FloatArray) -> bool:
    """Whether two of some windows, sorted by start, are so near in both times that they may round to the same."""
    for i in range(starts.size):
        for j in range(i + 1, starts.size):
            if starts[j] - starts[i] > 1e-5:
                break
            if abs(ends[j] - ends[i]) <= 1e-5:
                return True
    return False
