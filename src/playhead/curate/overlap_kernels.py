"""Kernels of the overlap filter: which windows stay, and how much windows overlap."""

from __future__ import annotations

import numpy as np

from playhead.curate.window_kernels import FloatArray
from playhead.types import BoolArray, IntArray, kernel

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
