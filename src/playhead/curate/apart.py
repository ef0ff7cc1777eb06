"""Kernels of the overlap filter: which windows stay, and how much windows overlap."""

from __future__ import annotations

import numpy as np

from playhead.curate.search import FloatArray
from playhead.types import IntArray, kernel

_NEAR_SECONDS = 1e-5  # nearer than this in both times, two windows may be one to six decimals


@kernel
def sorted_by_times(starts: FloatArray, ends: FloatArray) -> IntArray:
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
def window_times(
    starts: FloatArray, ends: FloatArray, firsts: IntArray, taken: IntArray, part_of: IntArray, part_ends: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The start and the end of each window."""
    window_starts, window_ends = np.empty(firsts.size), np.empty(firsts.size)
    for i in range(firsts.size):
        first = firsts[i]
        window_starts[i] = starts[first]
        part = part_of[first]
        window_ends[i] = part_ends[part] if part >= 0 else ends[first + taken[first] - 1]
    return window_starts, window_ends


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
def stay_apart(
    starts: FloatArray, ends: FloatArray, order: IntArray, threshold: float, target: float
) -> tuple[IntArray, IntArray, bool]:
    """Which windows stay, in the order given and by number; and whether two may round to the same times."""
    count = starts.size
    stays = np.ones(count, dtype=np.bool_)
    near = False
    for a in range(count):
        i = order[a]
        duration = ends[i] - starts[i]
        near = near or _has_near(starts, ends, order, a)
        if not stays[i]:
            continue
        for b in range(a + 1, count):
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
    staying, kept = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    num_staying, num_kept = 0, 0
    for i in range(count):
        if stays[order[i]]:
            staying[num_staying] = order[i]
            num_staying += 1
        if stays[i]:
            kept[num_kept] = i
            num_kept += 1
    return staying[:num_staying], kept[:num_kept], near


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


@kernel
def filter_windows(
    starts: FloatArray,
    ends: FloatArray,
    firsts: IntArray,
    taken: IntArray,
    part_of: IntArray,
    part_ends: FloatArray,
    threshold: float,
    target: float,
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray, bool, FloatArray, FloatArray]:
    """The whole filter in one call: times of windows, their order, what `stay_apart` and `closest_overlaps` tell."""
    window_starts, window_ends = window_times(starts, ends, firsts, taken, part_of, part_ends)
    order = sorted_by_times(window_starts, window_ends)
    staying, kept, near = stay_apart(window_starts, window_ends, order, threshold, target)
    overlaps = closest_overlaps(window_starts, window_ends, order)
    kept_overlaps = closest_overlaps(window_starts, window_ends, staying)
    return window_starts, window_ends, order, staying, kept, near, overlaps, kept_overlaps
