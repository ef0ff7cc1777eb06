"""Samples of a window in groups: `members` holds sample positions, group g those in [starts[g], starts[g + 1])."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from playhead.order.picks import counting_sort
from playhead.types import IntArray


@dataclass(frozen=True)
class Groups:
    members: IntArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def sizes(self) -> IntArray:
        return np.diff(self.starts)


CostOf = Callable[[Groups], IntArray]


def grouped(ids: IntArray, num_groups: int) -> Groups:
    """Groups by id. Law: inside a group samples keep their order."""
    return Groups(*counting_sort(ids, num_groups))


def in_order(num_samples: int, starts: IntArray) -> Groups:
    """Consecutive samples, cut at `starts`."""
    return Groups(np.arange(num_samples, dtype=np.int64), starts)


def padded_costs(groups: Groups, effective: IntArray) -> IntArray:
    """What each group costs when padded: its count times its longest effective length."""
    costs = groups.sizes()
    busy = np.flatnonzero(costs)  # a group without samples has no longest one, and costs nothing
    if len(busy):
        costs[busy] *= np.maximum.reduceat(effective[groups.members[: groups.starts[-1]]], groups.starts[busy])
    return costs


def total_lengths(groups: Groups, lengths: IntArray) -> IntArray:
    """The summed length of each group."""
    if not len(groups):
        return np.empty(0, np.int64)
    sums = np.concatenate(([0], np.cumsum(lengths[groups.members])))
    return np.diff(sums[groups.starts])


def split_largest(groups: Groups, cost_of: CostOf, num_more: int) -> Groups:
    """Make up to `num_more` more groups by halving the costliest that hold two samples or more.

    Law: no sample is lost, repeated or moved; fewer groups are added only if every group holds one sample.
    """
    while num_more > 0:
        sizes = groups.sizes()
        (splittable,) = np.nonzero(sizes > 1)
        if not len(splittable):
            break
        by_cost = np.argsort(-cost_of(groups)[splittable], kind="stable")
        chosen = splittable[by_cost[:num_more]]
        middles = groups.starts[chosen] + (sizes[chosen] + 1) // 2
        groups = Groups(groups.members, np.sort(np.concatenate((groups.starts, middles))))
        num_more -= len(chosen)
    return groups
