"""How micro-batches are formed, in whole length units. The recipe's batching, resolved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playhead.recipe.values import Overlong
from playhead.types import IntArray


@dataclass(frozen=True)
class FixedRule:
    size: int
    limit: int | None = None
    overlong: Overlong = "error"
    quadratic: int = 0


@dataclass(frozen=True)
class BudgetRule:
    budget: int
    limit: int
    quadratic: int = 0
    overlong: Overlong = "error"


@dataclass(frozen=True)
class BucketRule:
    """Bucket b holds inputs up to `edges[b]` and outputs up to `output_edges[b]`, `sizes[b]` samples at a time.

    Buckets are in order of their edges; a sample goes into the first that holds it.
    """

    edges: tuple[int, ...]
    sizes: tuple[int, ...]
    output_edges: tuple[int, ...] | None = None
    quadratic: int = 0
    overlong: Overlong = "error"

    @property
    def limit(self) -> int:
        return self.edges[-1]


@dataclass(frozen=True)
class PackRule:
    max_length: int
    overlong: Overlong = "error"
    quadratic: int = 0

    @property
    def limit(self) -> int:
        return self.max_length


Rule = FixedRule | BudgetRule | BucketRule | PackRule


def planned_lengths(rule: Rule, lengths: IntArray) -> IntArray:
    """Lengths as the plan counts them: cut to the limit under `truncate`, and never 0, so that every sample costs."""
    planned = np.maximum(lengths, 1)
    if rule.overlong == "truncate" and rule.limit is not None:
        np.minimum(planned, rule.limit, out=planned)
    return planned


def effective(rule: Rule, lengths: IntArray) -> IntArray:
    """What a length costs: d + d * d / Q, rounded up, where the rule has a quadratic term Q."""
    if not rule.quadratic:
        return lengths
    squares = lengths.astype(np.uint64) ** 2  # below 2^64, where int64 would overflow
    return lengths + ((squares + np.uint64(rule.quadratic - 1)) // np.uint64(rule.quadratic)).astype(np.int64)
