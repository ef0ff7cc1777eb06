"""The samples of a window, in draw order, formed into micro-batches by the rule."""

from __future__ import annotations

import numpy as np

from playhead.plan.groups import Groups, grouped, in_order
from playhead.plan.pack import pack
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule, effective
from playhead.types import IntArray, kernel


def form(rule: Rule, num_samples: int, lengths: IntArray | None, outputs: IntArray | None) -> Groups:
    """Micro-batches in the order they were opened. Law: every sample is in exactly one."""
    if isinstance(rule, FixedRule):
        return in_order(num_samples, np.append(np.arange(0, num_samples, rule.size), num_samples))
    assert lengths is not None, "the recipe check requires lengths"
    if isinstance(rule, BudgetRule):
        starts = np.empty(num_samples + 1, np.int64)
        num_groups = _cut_by_budget(effective(rule, lengths), rule.budget, starts)
        return in_order(num_samples, starts[: num_groups + 1].copy())
    if isinstance(rule, PackRule):
        return grouped(*pack(lengths, rule.max_length))
    return grouped(*_bucket(rule, lengths, outputs))


def num_formed(rule: BudgetRule | BucketRule | PackRule, lengths: IntArray, outputs: IntArray | None) -> int:
    """len(form(rule, len(lengths), lengths, outputs)), without laying the micro-batches out."""
    if isinstance(rule, BudgetRule):
        return int(_cut_by_budget(effective(rule, lengths), rule.budget, np.empty(len(lengths) + 1, np.int64)))
    _, number = pack(lengths, rule.max_length) if isinstance(rule, PackRule) else _bucket(rule, lengths, outputs)
    return number


def bucket_of(rule: BucketRule, lengths: IntArray, outputs: IntArray | None) -> IntArray:
    """The bucket of each sample; len(rule.edges) for one that no bucket holds."""
    first = np.searchsorted(np.array(rule.edges), lengths, side="left").astype(np.int64)
    if rule.output_edges is None or outputs is None:
        return first
    _next_that_holds(first, outputs, np.array(rule.output_edges))
    if rule.overlong == "truncate":
        np.minimum(first, len(rule.edges) - 1, out=first)
    return first


def _bucket(rule: BucketRule, lengths: IntArray, outputs: IntArray | None) -> tuple[IntArray, int]:
    sizes = np.array([*rule.sizes, 1])  # what no bucket holds goes alone
    ids = np.empty(len(lengths), np.int64)
    buckets = bucket_of(rule, lengths, outputs)
    return ids, int(_fill_buckets(buckets, sizes, np.empty_like(sizes), np.zeros_like(sizes), ids))


@kernel
def _cut_by_budget(costs: IntArray, budget: int, starts: IntArray) -> int:
    """Fill in where micro-batches start, and the end of the last; returns their number."""
    num_groups = 0
    begin = 0
    longest = 0
    for i in range(len(costs)):
        longest = max(longest, costs[i])
        if i > begin and (i - begin + 1) * longest > budget:
            starts[num_groups] = begin
            num_groups += 1
            begin = i
            longest = costs[i]
    if len(costs):
        starts[num_groups] = begin
        num_groups += 1
    starts[num_groups] = len(costs)
    return num_groups


@kernel
def _next_that_holds(buckets: IntArray, outputs: IntArray, output_edges: IntArray) -> None:
    for i in range(len(buckets)):
        while buckets[i] < len(output_edges) and outputs[i] > output_edges[buckets[i]]:
            buckets[i] += 1


@kernel
def _fill_buckets(buckets: IntArray, sizes: IntArray, current: IntArray, room: IntArray, ids: IntArray) -> int:
    """The micro-batch of each sample: a bucket's open one, until it has its size. Returns the number of them."""
    num_groups = 0
    for i in range(len(buckets)):
        bucket = buckets[i]
        if room[bucket] == 0:
            current[bucket] = num_groups
            room[bucket] = sizes[bucket]
            num_groups += 1
        ids[i] = current[bucket]
        room[bucket] -= 1
    return num_groups
