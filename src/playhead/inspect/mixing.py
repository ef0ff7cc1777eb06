"""How well an order mixes: how far apart rows land that are neighbours in their shard.

The score of a source is the mean distance, in the delivered order of its own samples, between row r and row r + 1 of
one shard (or block), divided by the mean distance (n + 1) / 3 of two rows in a uniform shuffle of its n rows.
1 is as good as a uniform shuffle; file order has 3 / (n + 1), nearly 0. A group of shards that holds a tenth of the
rows has about 0.1: neighbours land anywhere in their group, and nowhere else. Nothing mixes better than a uniform
shuffle: where a window holds several epochs, which lie across each other, the score is 1 all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from playhead.inspect.shard_peak import share_of
from playhead.order.permute import permute
from playhead.order.source_order import SourceOrder, places_of
from playhead.plan.plan import Plan
from playhead.plan.segments import round_end, segment_at
from playhead.resolve.batching import FloatArray
from playhead.seeds import key
from playhead.types import IntArray

_SHARDS_SAMPLED = 32
_PAIRS_OF_A_SHARD = 256
_DRAWS_MOVED = 1 << 14


def mixing_score(first: FloatArray, second: FloatArray, num_rows: int) -> float:
    """The score of pairs of neighbours by their positions in the delivered order of a source of `num_rows` rows.

    A source without neighbours (shards of one row) cannot be mixed worse than by a uniform shuffle: its score is 1.
    """
    if not len(first):
        return 1.0
    return min(1.0, float(np.abs(first - second).mean()) / ((num_rows + 1) / 3))


def source_mixing(plan: Plan, stream: int, sources: Sequence[int]) -> list[float]:
    """The scores of some sources of a sub-stream in their first epoch, estimated from a sample of neighbours.

    Places in a source's own order are exact, by its inverse, however many rows there are. Micro-batches are moved
    inside their windows as in the first windows. Law: the same plan has the same scores.
    """
    found, piece = plan.streams[stream], segment_at(plan.streams[stream], 0).pieces[0]
    moved = _moved(plan, stream)
    scores = []
    for source in sources:
        order, share = found.orders[source], share_of(piece, source)
        rows = _neighbours(order)
        first, second = [_delivered(places_of(order, 0, rows + more), share, moved) for more in (0, 1)]
        scores.append(mixing_score(first, second, order.num_rows))
    return scores


def _moved(plan: Plan, stream: int) -> list[IntArray]:
    """Where the draws of each of the first windows are in the delivered order of that window."""
    found: list[IntArray] = []
    last = round_end(plan.streams[stream], 0)
    while sum(map(len, found)) < _DRAWS_MOVED and (last is None or len(found) < last):
        members = plan.window(stream, len(found)).groups.members
        moved = np.empty(len(members), np.int64)
        moved[members] = np.arange(len(members))
        found.append(moved)
    return found


def _neighbours(order: SourceOrder) -> IntArray:
    """Some rows with a next one in their shard: of a few shards chosen by their rows, some of each, all by key."""
    starts = np.concatenate(([0], np.cumsum(order.shard_rows if len(order.shard_rows) else [order.num_rows])))
    chosen = np.unique(np.searchsorted(starts, _spread("shards", order.num_rows, _SHARDS_SAMPLED), side="right") - 1)
    found = [
        starts[shard] + _spread("rows", int(starts[shard + 1] - starts[shard]) - 1, _PAIRS_OF_A_SHARD)
        for shard in chosen.tolist()
        if starts[shard + 1] - starts[shard] > 1
    ]
    rows: IntArray = np.concatenate([np.empty(0, np.int64), *found]) + order.first_row
    return rows


def _spread(name: str, size: int, count: int) -> IntArray:
    """Up to `count` numbers below `size`, without repetition, in an order as random as any."""
    return permute(key("mixing", name), np.arange(min(size, count)), size)


def _delivered(places: IntArray, share: float, moved: list[IntArray]) -> FloatArray:
    """Positions among the delivered samples of a source, by the places of rows in its order.

    `share` is that of the source in the draws of its sub-stream: windows are cut from these, and shuffled.
    """
    size = len(moved[0])
    draws = (places / share).astype(np.int64) if share > 0 else places
    number, inside = np.divmod(draws, size)
    found = draws.copy()
    for i, permuted in enumerate(moved):
        chosen = (number % len(moved) == i) & (inside < len(permuted))
        found[chosen] = number[chosen] * size + permuted[inside[chosen]]
    return places + (found - draws) * share
