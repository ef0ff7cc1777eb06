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
def _find_times(
    starts: FloatArray,
    ends: FloatArray,
    firsts: IntArray,
    taken: IntArray,
    part_of: IntArray,
    part_ends: FloatArray,
    times: FloatArray,
) -> None:
    """Fill in the start, the end and the duration of each window."""
    for i in range(firsts.size):
        first = firsts[i]
        part = part_of[first]
        times[0, i] = starts[first]
        times[1, i] = part_ends[part] if part >= 0 else ends[first + taken[first] - 1]
        times[2, i] = times[1, i] - times[0, i]


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
def _stay_apart(
    starts: FloatArray,
    ends: FloatArray,
    order: IntArray,
    threshold: float,
    target: float,
    staying: IntArray,
    kept: IntArray,
) -> tuple[int, bool]:
    """Fill in which windows stay, in the order given and by number.

    Tells how many do, and whether two may round to the same times.
    """
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
    num_staying, num_kept = 0, 0
    for i in range(count):
        if stays[order[i]]:
            staying[num_staying] = order[i]
            num_staying += 1
        if stays[i]:
            kept[num_kept] = i
            num_kept += 1
    return num_kept, near


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
    times: FloatArray,
    orders: IntArray,
) -> tuple[int, bool]:
    """The whole filter in one call. Tells how many windows stay, and whether two may round to the same times.

    Filled in are `times`: starts, ends, durations, overlaps, overlaps of those that stay; and `orders`: the order of
    all, those that stay in it, and by number.
    """
    _find_times(starts, ends, firsts, taken, part_of, part_ends, times)
    orders[0] = sorted_by_times(times[0], times[1])
    num_kept, near = _stay_apart(times[0], times[1], orders[0], threshold, target, orders[1], orders[2])
    times[3] = closest_overlaps(times[0], times[1], orders[0])
    times[4, :num_kept] = closest_overlaps(times[0], times[1], orders[1, :num_kept])
    return num_kept, near
