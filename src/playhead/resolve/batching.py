"""The recipe's batching resolved to a rule in whole units."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from playhead.errors import RecipeError
from playhead.index.histogram import Histogram, bounds, lower_bounds
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule, effective
from playhead.recipe.tree import Leaf
from playhead.recipe.units import in_units, readable
from playhead.recipe.values import Bucket, Budget, Fixed, Pack

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """The lengths of what a sub-stream draws: per histogram bin, the chance of a draw and its expected length.

    Sums run left to right (cumsum), so every platform rounds alike.
    """

    chance: FloatArray
    length: FloatArray
    longest: int

    def mean(self, limit: int) -> float:
        """The expected length of a draw, each counted up to `limit`: longer samples are truncated, or batched alone."""
        lengths = np.where(lower_bounds() > limit, self.chance * limit, self.length)
        return float(np.cumsum(lengths)[-1])


def profile(histograms: list[Histogram], shares: list[float], longest: int) -> Profile:
    """The blend of the sources' histograms."""
    chance = np.zeros(len(histograms[0].counts))
    length = np.zeros(len(histograms[0].counts))
    for histogram, share in zip(histograms, shares, strict=True):
        chance += histogram.counts * (share / histogram.num_rows)
        length += histogram.sums * (share / histogram.num_rows)
    return Profile(chance, length, max(longest, 1))  # a sample without length is planned as 1


def default_balance(lanes: int) -> int:
    return gcd(lanes, 8)


def resolve_rule(leaf: Leaf, inputs: Profile | None, outputs: Profile | None) -> Rule:
    """The batching of a sub-stream, of which `leaf` is one source, in whole units, bucket edges included."""
    batching, where, unit, limit = leaf.batching, leaf.batching_path, leaf.unit, leaf.limit
    if isinstance(batching, Fixed):
        return FixedRule(batching.size, limit, batching.overlong)
    if isinstance(batching, Pack):
        assert limit is not None
        return PackRule(limit, batching.overlong)
    quadratic = 0 if batching.quadratic is None else in_units(batching.quadratic, unit, f"{where}.quadratic")
    if isinstance(batching, Budget):
        assert limit is not None
        budget = in_units(batching.budget, unit, f"{where}.budget")
        if limit == 0:
            raise RecipeError(
                f"{where}.budget: is too small for a sample of any length, the quadratic term included",
                found=f"budget {batching.budget:g}, quadratic {batching.quadratic:g}",
                expected=f"at least {readable(2, unit)}: a length of {readable(1, unit)} and its quadratic term",
            )
        return BudgetRule(budget, limit, quadratic, batching.overlong)
    assert inputs is not None
    edges, output_edges = _bucket_edges(batching, inputs, outputs, leaf)
    sizes = _bucket_sizes(batching, edges, quadratic, leaf)
    return BucketRule(tuple(edges), sizes, output_edges, quadratic, batching.overlong)


def bucket_chances(rule: BucketRule, inputs: Profile) -> list[float]:
    """The chance that a draw falls into each bucket; two-dimensional buckets share their input range evenly."""
    distinct = sorted(set(rule.edges))
    cumulative = np.concatenate(([0.0], np.cumsum(inputs.chance)))
    ends = cumulative[np.searchsorted(lower_bounds(), distinct, side="right")]
    ends[-1] = cumulative[-1]
    by_edge = dict(zip(distinct, np.diff(np.concatenate(([0.0], ends))), strict=True))
    return [float(by_edge[edge]) / rule.edges.count(edge) for edge in rule.edges]


def _bucket_edges(
    batching: Bucket, inputs: Profile, outputs: Profile | None, leaf: Leaf
) -> tuple[list[int], tuple[int, ...] | None]:
    where = f"{leaf.batching_path}.edges"
    if isinstance(batching.num, int):
        return equal_length_edges(inputs, batching.num), None
    if batching.num is not None:
        assert outputs is not None
        num_inputs, num_outputs = batching.num
        output_edges = equal_length_edges(outputs, num_outputs)
        pairs = [(a, b) for a in equal_length_edges(inputs, num_inputs) for b in output_edges]
        return [a for a, _ in pairs], tuple(b for _, b in pairs)
    edges, ends = [], []
    for edge in batching.edges or ():
        first, *second = edge if isinstance(edge, tuple) else (edge,)
        edges.append(in_units(first, leaf.unit, where))
        ends += [in_units(end, leaf.output_unit, where) for end in second]
    return edges, tuple(ends) or None


def equal_length_edges(lengths: Profile, num: int) -> list[int]:
    """The upper edges of `num` buckets of equal total length; fewer where lengths do not differ enough."""
    cumulative = np.cumsum(lengths.length)
    targets = [cumulative[-1] * (k / num) for k in range(1, num)]
    edges = {bounds(int(number))[1] - 1 for number in np.searchsorted(cumulative, targets)}
    return sorted({edge for edge in edges if 0 < edge < lengths.longest} | {lengths.longest})


def _bucket_sizes(batching: Bucket, edges: list[int], quadratic: int, leaf: Leaf) -> tuple[int, ...]:
    """A bucket's size as given, or as many samples of its longest length as the budget holds."""
    where = leaf.batching_path
    if isinstance(batching.size, list):
        if len(batching.size) != len(edges):
            raise RecipeError(
                f"{where}.size: there must be one size for each bucket",
                found=f"{len(batching.size)} sizes",
                expected=f"{len(edges)}: the lengths give buckets up to {', '.join(map(str, edges))}",
                fix="give one size for all, or a budget",
            )
        return tuple(batching.size)
    if batching.size is not None:
        return (batching.size,) * len(edges)
    assert batching.budget is not None
    budget = in_units(batching.budget, leaf.unit, f"{where}.budget")
    rule = BucketRule(tuple(edges), (), None, quadratic)
    return tuple(max(1, budget // int(cost)) for cost in effective(rule, np.array(edges)))
