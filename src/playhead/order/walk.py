"""How one source is walked, draw after draw, epoch after epoch.

Draw k of a source with n rows is epoch k // n; the shuffle says which row stands at place k % n of that epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from playhead.order.hashing import fold64
from playhead.order.permute import SMALL, num_bits, permute, round_keys, small_table, unpermute, walk_forward
from playhead.seeds import extend, fold
from playhead.types import IntArray, kernel

_NO_SHARDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Walk:
    """The rows of a source and its kind of shuffle: none, global or shards.

    `key` is the key of (seed, "shuffle", source name). With `shards`, groups of `group` shards (in an order
    permuted per epoch) are shuffled inside, one group after another. `first_row` is not 0 where a sub-stream walks a
    part of the source.
    """

    num_rows: int
    shuffle: str
    key: int
    shard_rows: IntArray = field(default_factory=lambda: _NO_SHARDS)
    group: int = 1
    first_row: int = 0


def rows_between(walk: Walk, first: int, stop: int) -> tuple[IntArray, IntArray]:
    """Epochs and rows of the draws [first, stop).

    Law: over the draws of one epoch every row comes once.
    """
    draws = np.arange(first, stop, dtype=np.int64)
    epochs = draws // walk.num_rows
    if walk.shuffle == "none":
        return epochs, draws % walk.num_rows + walk.first_row
    rows = np.empty(len(draws), np.int64)
    if walk.shuffle == "global":
        _fill_global(np.uint64(walk.key), walk.num_rows, first, rows)
        return epochs, rows + walk.first_row
    for epoch in range(first // walk.num_rows, -(-stop // walk.num_rows)):
        start = max(first, epoch * walk.num_rows)
        end = min(stop, (epoch + 1) * walk.num_rows)
        places = np.arange(start, end, dtype=np.int64) - epoch * walk.num_rows
        rows[start - first : end - first] = _shard_rows_at(walk, epoch, places)
    return epochs, rows + walk.first_row


def draw_of(walk: Walk, epoch: int, row: int) -> int:
    """The draw that gives `row` in `epoch`: the inverse of `rows_between`."""
    start = epoch * walk.num_rows
    row -= walk.first_row
    if walk.shuffle == "none":
        return start + row
    if walk.shuffle == "global":
        place = unpermute(fold(walk.key, epoch), np.array([row]), walk.num_rows)[0]
        return start + int(place)
    return start + _shard_place_of(walk, epoch, row)


@kernel
def _fill_global(key: np.uint64, n: int, first: int, rows: IntArray) -> None:
    done = 0
    bits = num_bits(n)
    while done < len(rows):
        epoch = (first + done) // n
        place = first + done - epoch * n
        take = min(n - place, len(rows) - done)
        epoch_key = fold64(key, np.uint64(epoch))
        if n < SMALL:
            rows[done : done + take] = small_table(epoch_key, n)[place : place + take]
        else:
            keys = round_keys(epoch_key)
            for i in range(take):
                rows[done + i] = walk_forward(keys, place + i, n, bits)
        done += take


@dataclass(frozen=True)
class _Layout:
    """One epoch of a shard shuffle: the shards in walking order and where each begins."""

    key: int
    shards: IntArray
    begins: IntArray  # of each shard in walking order, and the end
    row_begins: IntArray  # of each shard in row order


def _layout(walk: Walk, epoch: int) -> _Layout:
    key = fold(walk.key, epoch)
    num_shards = len(walk.shard_rows)
    shards = permute(extend(key, "shards"), np.arange(num_shards), num_shards)
    begins = np.concatenate(([0], np.cumsum(walk.shard_rows[shards])))
    row_begins = np.concatenate(([0], np.cumsum(walk.shard_rows)))
    return _Layout(key, shards, begins, row_begins)


def _group_span(walk: Walk, layout: _Layout, group: int) -> tuple[int, int]:
    last = min((group + 1) * walk.group, len(layout.shards))
    return int(layout.begins[group * walk.group]), int(layout.begins[last])


def _shard_rows_at(walk: Walk, epoch: int, places: IntArray) -> IntArray:
    """The rows at consecutive places of an epoch."""
    layout = _layout(walk, epoch)
    rows = np.empty(len(places), np.int64)
    done = 0
    while done < len(places):
        group = int(np.searchsorted(layout.begins, places[done], side="right") - 1) // walk.group
        start, end = _group_span(walk, layout, group)
        take = min(end - int(places[done]), len(places) - done)
        inside = places[done : done + take] - start
        mixed = start + permute(extend(layout.key, "group", group), inside, end - start)
        position = np.searchsorted(layout.begins, mixed, side="right") - 1
        rows[done : done + take] = layout.row_begins[layout.shards[position]] + mixed - layout.begins[position]
        done += take
    return rows


def _shard_place_of(walk: Walk, epoch: int, row: int) -> int:
    layout = _layout(walk, epoch)
    shard = int(np.searchsorted(layout.row_begins, row, side="right") - 1)
    position = int(np.flatnonzero(layout.shards == shard)[0])
    mixed = int(layout.begins[position]) + row - int(layout.row_begins[shard])
    start, end = _group_span(walk, layout, position // walk.group)
    key = extend(layout.key, "group", position // walk.group)
    return start + int(unpermute(key, np.array([mixed - start]), end - start)[0])
