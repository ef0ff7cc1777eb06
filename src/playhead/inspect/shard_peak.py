"""The largest number of shards of a source that are in use at a time, in any window of any epoch.

A shard is in use from the first step that holds a row of it to the last. Steps are shuffled over their window, and a
source is read group of shards after group of shards; so at a step those are in use whose groups have draws in the
step's window. Which shards make a group is another in every epoch: only their sizes are known to all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np

from playhead.index.table import Table
from playhead.order.picks import Piece, counters_at
from playhead.order.source_order import SourceOrder
from playhead.plan.segments import Segment, Stream, segment_at
from playhead.types import IntArray

_DEVIATIONS = 4  # of the draws of a source in a window of a blend: one window in 30,000 has more
_MANY_BLOCKS = 1 << 10


@dataclass(frozen=True)
class ShardPeak:
    """The most shards of a source that are in use at a time, and the most bytes. A shard is one in all epochs.

    With `unit` block, blocks are counted.
    """

    name: str
    num_shards: int
    num_bytes: int
    unit: str = "shard"


def shard_peaks(stream: Stream, tables: Mapping[str, Table]) -> tuple[ShardPeak, ...]:
    """The peaks of a sub-stream's sources; `tables`, by source, have the sizes of their shards."""
    return tuple(
        shard_peak(stream, i, tables[name])
        for i, (name, order) in enumerate(zip(stream.source_names, stream.orders, strict=True))
        if order.shuffle == "shards" and name in tables
    )


def shard_peak(stream: Stream, source: int, table: Table) -> ShardPeak:
    """The peak of one source, whatever its shuffle: any shard may be in use with `global`; `none` is read shard after
    shard, as groups of one are.
    """
    segment, order = segment_at(stream, 0), stream.orders[source]
    sizes = unit_bytes(table, order)[order.shard_rows > 0]
    count = len(sizes)
    if order.shuffle != "global":
        order = order if order.shuffle == "shards" else replace(order, group=1)
        epochs_meet = not segment.pieces[0].blend.pass_draws
        count = min(count, most_shards(order, _most_draws(segment, source), epochs_meet=epochs_meet))
    return ShardPeak(stream.source_names[source], count, int(np.sort(sizes)[::-1][:count].sum()), table.unit)


def most_shards(order: SourceOrder, num_draws: int, *, epochs_meet: bool) -> int:
    """The most shards that `num_draws` consecutive draws of a source can belong to, by the groups they touch.

    Law: never fewer than the shards of those groups, in any epoch or where epochs meet; exact where all shards have
    as many rows and whole groups make an epoch.
    """
    rows = np.sort(order.shard_rows[order.shard_rows > 0])
    before, num_shards = np.concatenate(([0], np.cumsum(rows))), len(rows)
    group = min(order.group, num_shards)
    if num_draws < 2:
        return group * num_draws
    # Two groups have the first and the last draw; between them are whole ones, made of the smallest shards at worst.
    # Groups have fewer shards with rows where some shards have none.
    step = group if num_shards == len(order.shard_rows) else 1
    between, whole = num_draws - 2, np.arange(0, num_shards + 1, step)
    most = min(2 * group + int(whole[before[whole] <= between].max()), num_shards)
    if not epochs_meet:
        return most
    # Between them may be the end of an epoch, with the short group that is its last, and the beginning of another.
    ends = np.arange(num_shards % step, num_shards + 1, step)
    full = between // int(before[-1])
    for epochs in range(max(0, full - 1), full + 1):
        left = between - epochs * int(before[-1])
        fitting = ends[before[ends] <= left]
        beginnings = whole[np.searchsorted(before[whole], left - before[fitting], side="right") - 1]
        most = max(most, epochs * num_shards + 2 * group + int((fitting + beginnings).max(initial=0)))
    return most


def _most_draws(segment: Segment, source: int) -> int:
    """The most draws of a source in a window."""
    return max(_draws_in_window(piece, source, segment.window_size) for piece in segment.pieces)


def _draws_in_window(piece: Piece, source: int, window_size: int) -> int:
    if source not in piece.members:
        return 0
    share = share_of(piece, source)
    if share == 1:
        return window_size
    mean = window_size * share
    return min(window_size, ceil(mean + _DEVIATIONS * sqrt(mean * (1 - share))))


def share_of(piece: Piece, source: int) -> float:
    """The share of the draws of a piece that go to a source."""
    num_draws = piece.blend.pass_draws or piece.blend.block * _MANY_BLOCKS
    drawn = counters_at(piece, piece.first_draw + num_draws) - piece.base
    return int(drawn[source]) / num_draws


def unit_bytes(table: Table, order: SourceOrder) -> IntArray:
    """The size of each shard of the order, which may be a part of the source."""
    first = np.concatenate(([0], np.cumsum(table.unit_rows)))
    count = len(order.shard_rows)
    begins = np.flatnonzero(first[: len(first) - count] == order.first_row)
    begin = next(i for i in begins.tolist() if np.array_equal(table.unit_rows[i : i + count], order.shard_rows))
    return table.unit_bytes[begin : begin + count]
