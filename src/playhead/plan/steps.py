"""Micro-batches of a window arranged into whole steps of `lanes`, of even cost inside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playhead.order.hashing import fold64, nth_below
from playhead.order.permute import permute
from playhead.plan.groups import CostOf, Groups, split_largest
from playhead.types import IntArray, kernel


@dataclass(frozen=True)
class Arrangement:
    """How micro-batches become steps: lanes, the groups of like cost (`balance`), and the window's keys.

    `in_order` keeps micro-batches as they were formed: no sort, no permutation.
    """

    lanes: int
    balance: int
    in_order: bool
    steps_key: int
    lanes_key: int


def whole_steps(groups: Groups, cost_of: CostOf, how: Arrangement) -> Groups:
    """Micro-batch s * lanes + l of the result is lane l of step s; empty ones are idle and stand in the last step.

    Law: the number of micro-batches is a whole multiple of `lanes`, and no sample is lost, repeated or split.
    """
    groups = split_largest(groups, cost_of, -len(groups) % how.lanes)
    num_idle = -len(groups) % how.lanes
    if not num_idle:
        return reordered(groups, _order(cost_of(groups), how))
    busy = reordered(groups, _order_one_by_one(len(groups), how))
    return Groups(busy.members, np.append(busy.starts, np.full(num_idle, busy.starts[-1])))


def fixed_steps(groups: Groups, cost_of: CostOf | None, size: int, how: Arrangement) -> Groups:
    """As `whole_steps` for micro-batches of a fixed size, which are never split.

    Law: the samples that do not fill a step are dealt evenly over the lanes of one last step.
    """
    num_samples = len(groups.members)
    num_full = num_samples // (size * how.lanes) * how.lanes
    full = Groups(groups.members, groups.starts[: num_full + 1])
    order = _order_one_by_one(num_full, how) if cost_of is None else _order(cost_of(full), how)
    head = reordered(full, order)
    rest = num_samples - num_full * size
    if not rest:
        return head
    share, extra = divmod(rest, how.lanes)
    ends = num_full * size + np.cumsum([share + (lane < extra) for lane in range(how.lanes)])
    return Groups(np.concatenate((head.members, groups.members[num_full * size :])), np.append(head.starts, ends))


def reordered(groups: Groups, order: IntArray) -> Groups:
    """The groups in another order."""
    begins = groups.starts[order]
    starts = np.zeros(len(order) + 1, np.int64)
    np.cumsum(groups.starts[order + 1] - begins, out=starts[1:])
    members = np.empty(starts[-1], np.int64)
    _gather(groups.members, begins, starts, members)
    return Groups(members, starts)


def _order(costs: IntArray, how: Arrangement) -> IntArray:
    if how.in_order or how.balance == 1:
        return _order_one_by_one(len(costs), how)
    by_cost = np.argsort(costs, kind="stable")
    num_bands = len(costs) // how.balance
    bands = permute(how.steps_key, np.arange(num_bands), num_bands)
    order = by_cost.reshape(num_bands, how.balance)[bands].reshape(-1)
    _shuffle_lanes(np.uint64(how.lanes_key), order, how.lanes)
    return order


def _order_one_by_one(num_groups: int, how: Arrangement) -> IntArray:
    places = np.arange(num_groups, dtype=np.int64)
    return places if how.in_order else permute(how.steps_key, places, num_groups)


@kernel
def _shuffle_lanes(key: np.uint64, order: IntArray, lanes: int) -> None:
    """Inside a step the bands must not leave the cheap micro-batches to the low lanes."""
    for step in range(len(order) // lanes):
        step_key = fold64(key, np.uint64(step))
        for i in range(lanes - 1, 0, -1):
            a = step * lanes + i
            b = step * lanes + nth_below(step_key, i, i + 1)
            order[a], order[b] = order[b], order[a]


@kernel
def _gather(members: IntArray, begins: IntArray, out_starts: IntArray, out: IntArray) -> None:
    for g in range(len(begins)):
        shift = begins[g] - out_starts[g]
        for i in range(out_starts[g], out_starts[g + 1]):
            out[i] = members[i + shift]
