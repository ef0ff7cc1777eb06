"""The order in which one source is read, draw after draw, epoch after epoch.

Draw k of a source with n rows is epoch k // n; the shuffle says which row stands at place k % n of that epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from playhead.order.hashing import fold_each
from playhead.order.permute import SMALL, permute, permute_in_place, small_tables, unpermute
from playhead.seeds import extend, fold
from playhead.types import IntArray

_NO_SHARDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class SourceOrder:
    """The rows of a source and its kind of shuffle: none, global or shards.

    `key` is the key of (seed, "shuffle", source name). With `shards`, groups of `group` shards (in an order
    permuted per epoch) are shuffled inside, one group after another. `first_row` is not 0 where a sub-stream reads a
    part of the source.
    """

    num_rows: int
    shuffle: str
    key: int
    shard_rows: IntArray = field(default_factory=lambda: _NO_SHARDS)
    group: int = 1
    first_row: int = 0


def rows_between(order: SourceOrder, first: int, stop: int) -> tuple[IntArray, IntArray]:
    """Epochs and rows of the draws [first, stop).

    Law: over the draws of one epoch every row comes once.
    """
    draws = np.arange(first, stop, dtype=np.int64)
    if order.shuffle == "none":
        return draws // order.num_rows, draws % order.num_rows + order.first_row
    if order.shuffle == "global" and order.num_rows < SMALL:
        return draws // order.num_rows, _small_rows(order, first, stop) + order.first_row
    rows, epochs = draws, np.empty(len(draws), np.int64)
    for epoch in range(first // order.num_rows, -(-stop // order.num_rows)):
        begin = epoch * order.num_rows
        chosen = slice(max(first, begin) - first, min(stop, begin + order.num_rows) - first)
        epochs[chosen] = epoch
        places = rows[chosen]
        places -= begin
        if order.shuffle == "global":
            permute_in_place(fold(order.key, epoch), places, order.num_rows)
        else:
            places[:] = _shard_rows_at(order, epoch, places)
    rows += order.first_row
    return epochs, rows


def draw_of(order: SourceOrder, epoch: int, row: int) -> int:
    """The draw that gives `row` in `epoch`: the inverse of `rows_between`."""
    return epoch * order.num_rows + int(places_of(order, epoch, np.array([row]))[0])


def places_of(order: SourceOrder, epoch: int, rows: IntArray) -> IntArray:
    """The place of each row in the order of an epoch, counted from 0."""
    rows = rows - order.first_row
    if order.shuffle == "none":
        return rows
    if order.shuffle == "global":
        return unpermute(fold(order.key, epoch), rows, order.num_rows)
    return _shard_places_of(order, epoch, rows)


def _small_rows(order: SourceOrder, first: int, stop: int) -> IntArray:
    """The rows of a small source in draw order: the tables of all its epochs, end to end, some at a time."""
    n = order.num_rows
    rows = np.empty(stop - first, np.int64)
    at_a_time = max(1, SMALL // n)
    for epoch in range(first // n, -(-stop // n), at_a_time):
        epochs = np.arange(epoch, min(epoch + at_a_time, -(-stop // n)), dtype=np.uint64)
        table = small_tables(fold_each(order.key, epochs), n).reshape(-1)
        begin, end = max(first, epoch * n), min(stop, epoch * n + len(table))
        rows[begin - first : end - first] = table[begin - epoch * n : end - epoch * n]
    return rows


@dataclass(frozen=True)
class _Layout:
    """One epoch of a shard shuffle: the shards in the epoch's order and where each begins."""

    key: int
    shards: IntArray
    begins: IntArray  # of each shard in the epoch's order, and the end
    row_begins: IntArray  # of each shard in row order


def _layout(order: SourceOrder, epoch: int) -> _Layout:
    key = fold(order.key, epoch)
    num_shards = len(order.shard_rows)
    shards = permute(extend(key, "shards"), np.arange(num_shards), num_shards)
    begins = np.concatenate(([0], np.cumsum(order.shard_rows[shards])))
    row_begins = np.concatenate(([0], np.cumsum(order.shard_rows)))
    return _Layout(key, shards, begins, row_begins)


def _group_span(order: SourceOrder, layout: _Layout, group: int) -> tuple[int, int]:
    last = min((group + 1) * order.group, len(layout.shards))
    return int(layout.begins[group * order.group]), int(layout.begins[last])


def _shard_rows_at(order: SourceOrder, epoch: int, places: IntArray) -> IntArray:
    """The rows at consecutive places of an epoch."""
    layout = _layout(order, epoch)
    rows = np.empty(len(places), np.int64)
    done = 0
    while done < len(places):
        group = int(np.searchsorted(layout.begins, places[done], side="right") - 1) // order.group
        start, end = _group_span(order, layout, group)
        take = min(end - int(places[done]), len(places) - done)
        inside = places[done : done + take] - start
        mixed = start + permute(extend(layout.key, "group", group), inside, end - start)
        position = np.searchsorted(layout.begins, mixed, side="right") - 1
        rows[done : done + take] = layout.row_begins[layout.shards[position]] + mixed - layout.begins[position]
        done += take
    return rows


def _shard_places_of(order: SourceOrder, epoch: int, rows: IntArray) -> IntArray:
    layout = _layout(order, epoch)
    shards = np.searchsorted(layout.row_begins, rows, side="right") - 1
    positions = np.empty(len(layout.shards), np.int64)
    positions[layout.shards] = np.arange(len(layout.shards))
    position = positions[shards]
    places = layout.begins[position] + rows - layout.row_begins[shards]
    for group in np.unique(position // order.group).tolist():
        start, end = _group_span(order, layout, group)
        chosen = position // order.group == group
        key = extend(layout.key, "group", group)
        places[chosen] = start + unpermute(key, places[chosen] - start, end - start)
    return places
