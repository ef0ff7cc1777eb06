"""The default number of draws in a window.

A window holds whole steps, so the micro-batches it forms are split up to the next multiple of `lanes`. The size is
chosen so that their expected number falls just short of one: then next to nothing is split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, sqrt

import numpy as np

from playhead.index.histogram import lower_bounds
from playhead.order.permute import permute
from playhead.order.source_order import SourceOrder
from playhead.plan.form import num_formed
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule, effective, planned_lengths
from playhead.resolve.batching import FloatArray, Profile, bucket_chances
from playhead.seeds import key
from playhead.types import IntArray

MIN_STEPS = 200
FEWEST_STEPS = 8
MIN_BATCHES_PER_BUCKET = 50
LARGEST_WINDOW = 1 << 22
_FEWEST_SAMPLES = 1 << 12
_MOST_SAMPLES = 1 << 17
_ENOUGH = 1.02  # share of the wanted steps that remains when draws turn out shorter than expected

# How many standard deviations to stay below a whole number of steps, by the deviation over the lanes: the density of
# the normal distribution at 1, 2 and 3, where one more costs as much as the extra step that it avoids.
_MARGINS = ((0.0044, 3), (0.054, 2), (0.242, 1))


@dataclass(frozen=True)
class Drawn:
    """What a sub-stream draws: the profiles of its lengths, and each source's order with its share of the draws."""

    inputs: Profile | None
    outputs: Profile | None
    orders: tuple[tuple[SourceOrder, float], ...] = ()


def default_window_size(rule: Rule, lanes: int, drawn: Drawn) -> int:
    """At least 200 steps, and 50 full micro-batches in every bucket that is not empty, within these bounds:

    at most 2^22 draws, unless fewer than 8 steps would fit; at most the rows of one group of any source with
    `shuffle: shards`; at least one step. A multiple of `lanes` (of size * lanes where micro-batches are fixed).
    """
    most = _draws_of_a_group(drawn.orders)
    if isinstance(rule, FixedRule):
        unit = rule.size * lanes
        steps = min(MIN_STEPS, max(FEWEST_STEPS, LARGEST_WINDOW // unit))
        return max(1, min(steps, most // unit)) * unit
    assert drawn.inputs is not None
    rough = _Count(rule, drawn.inputs, drawn.outputs, _FEWEST_SAMPLES)
    draws = min(rough.draws_wanted(lanes), max(LARGEST_WINDOW, rough.draws_for(FEWEST_STEPS, lanes)), most)
    count = _Count(rule, drawn.inputs, drawn.outputs, min(max(int(draws / 16), _FEWEST_SAMPLES), _MOST_SAMPLES))
    wanted = ceil(count.steps_of(count.draws_wanted(lanes), lanes) * _ENOUGH)
    bound = int(max(FEWEST_STEPS, count.steps_of(LARGEST_WINDOW, lanes)))
    bound = max(1, min(bound, int(count.steps_of(most, lanes))))
    if wanted * 5 // 4 <= bound:
        return count.least_split(range(wanted, wanted * 5 // 4 + 1), lanes) * lanes
    return count.least_split(range(max(1, min(bound, FEWEST_STEPS), bound * 3 // 4), bound + 1), lanes) * lanes


def _draws_of_a_group(orders: tuple[tuple[SourceOrder, float], ...]) -> int:
    """The draws of the stream that take no more of any shard-shuffled source than its smallest group of shards."""
    most = [
        int(np.sort(order.shard_rows[order.shard_rows > 0])[: order.group].sum() / share)
        for order, share in orders
        if order.shuffle == "shards"
    ]
    return min(most, default=1 << 62)


@dataclass(frozen=True)
class _Count:
    """The number of micro-batches that draws form, expected from forming a sample, and how far it strays."""

    rule: BudgetRule | BucketRule | PackRule
    inputs: Profile
    outputs: Profile | None
    sample_size: int

    def steps_of(self, draws: float, lanes: int) -> float:
        """The steps that draws are expected to fill."""
        return (self._open + draws * self._per_draw) / lanes

    def draws_for(self, steps: float, lanes: int) -> float:
        return max(0.0, steps * lanes - self._open) / self._per_draw

    def draws_wanted(self, lanes: int) -> float:
        """Enough for 200 steps, and for 50 full micro-batches of every bucket that is not empty."""
        wanted = self.draws_for(MIN_STEPS, lanes)
        if not isinstance(self.rule, BucketRule):
            return wanted
        chances = zip(bucket_chances(self.rule, self.inputs), self.rule.sizes, strict=True)
        return max(wanted, *(MIN_BATCHES_PER_BUCKET * size / chance for chance, size in chances if chance > 0))

    def least_split(self, steps: range, lanes: int) -> int:
        """The window, in multiples of `lanes` draws, that falls least short of a number of steps in the range."""
        found = [(self._multiples(number, lanes), number) for number in steps]
        return max(found, key=lambda pair: self.steps_of(pair[0] * lanes, lanes) / pair[1])[0]

    def _multiples(self, steps: int, lanes: int) -> int:
        """The multiples of `lanes` draws that form just short of this number of steps."""
        draws = self.draws_for(steps, lanes)
        deviation = sqrt(draws) * self._added[1] + self._uncertainty * steps * lanes
        margin = next((times * deviation for bound, times in _MARGINS if deviation <= bound * lanes), 0.0)
        return max(1, int(self.draws_for(steps - margin / lanes, lanes) / lanes))

    @cached_property
    def _formed(self) -> tuple[int, int]:
        """The micro-batches of a window of typical draws, and of one twice as long."""
        found = []
        for size in (self.sample_size, 2 * self.sample_size):
            lengths = planned_lengths(self.rule, _typical_draws(self.inputs, size, "inputs"))
            outputs = None if self.outputs is None else _typical_draws(self.outputs, size, "outputs")
            found.append(num_formed(self.rule, lengths, outputs))
        return found[0], found[1]

    @property
    def _per_draw(self) -> float:
        """Micro-batches to a draw in the long run; as if all were full, where a sample is too small to fill any."""
        few, many = self._formed
        return (many - few) / self.sample_size if many > few else self._added[0]

    @property
    def _open(self) -> float:
        """By how many micro-batches a window forms more than that, because some are partly filled where it ends."""
        few, many = self._formed
        return max(0.0, float(2 * few - many))

    @property
    def _uncertainty(self) -> float:
        """How far the sample may be off, as a fraction: budgets depend on which lengths happen to meet."""
        return 0.3 / sqrt(self._formed[1]) if isinstance(self.rule, BudgetRule) else 0.001

    @cached_property
    def _lengths(self) -> FloatArray:
        """The mean planned length of every bin."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(self.inputs.chance > 0, self.inputs.length / self.inputs.chance, 0.0)
        cut = self.rule.overlong == "truncate" and self.rule.limit is not None
        return np.maximum(np.minimum(mean, self.rule.limit) if cut else mean, 1.0)

    @cached_property
    def _added(self) -> tuple[float, float]:
        """What one draw adds to the number of full micro-batches: the mean, and the standard deviation."""
        rule, chance = self.rule, self.inputs.chance
        if isinstance(rule, PackRule):
            added = self._lengths / rule.max_length
        elif isinstance(rule, BudgetRule):
            added = effective(rule, self._lengths.astype(np.int64)) / rule.budget
        else:
            sizes = np.array([*rule.sizes, 1.0])
            added = 1 / sizes[np.searchsorted(np.array(rule.edges), lower_bounds(), side="left")]
        mean = float(np.cumsum(added * chance)[-1])
        return mean, sqrt(max(0.0, float(np.cumsum(added * added * chance)[-1]) - mean * mean))


def _typical_draws(profile: Profile, size: int, name: str) -> IntArray:
    """The quantiles of a profile in an order as random as that of draws."""
    cumulative = np.cumsum(profile.chance)
    quantiles = (np.arange(size) + 0.5) / size * cumulative[-1]
    counts = np.diff(np.searchsorted(quantiles, cumulative, side="right"), prepend=0)
    (used,) = np.nonzero(counts)
    lengths = np.repeat(np.rint(profile.length[used] / profile.chance[used]).astype(np.int64), counts[used])
    drawn: IntArray = lengths[_typical_order(name, size)]
    return drawn


@lru_cache(maxsize=8)
def _typical_order(name: str, size: int) -> IntArray:
    """The same for all sub-streams of a recipe."""
    return permute(key("typical draws", name), np.arange(size), size)
