"""Draws of the blended stream resolved to picks.

The stream's draws are laid out in pieces, each with one blend; a piece begins where the blend changes (an amendment,
or a source that leaves under `exhaustion: drop`). Every source keeps its own draw counter across pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from playhead.order import blend as blending
from playhead.order import source_order
from playhead.order.blend import Blend
from playhead.order.source_order import SourceOrder
from playhead.types import IntArray, kernel


class Picks(Struct, frozen=True):
    """What draws resolve to, as parallel arrays; `source` is a position in the stream's list of sources."""

    source: IntArray
    epoch: IntArray
    row: IntArray

    def __len__(self) -> int:
        return len(self.source)

    def take(self, positions: IntArray) -> Picks:
        return Picks(self.source[positions], self.epoch[positions], self.row[positions])


@dataclass(frozen=True)
class Piece:
    """Draws [first_draw, stop_draw) under one blend; `stop_draw` None: endless.

    `members` are the blend's sources, `base` the draw counter of every source of the stream at `first_draw`.
    """

    first_draw: int
    stop_draw: int | None
    members: IntArray
    base: IntArray
    blend: Blend

    def pass_end(self, draw: int) -> int | None:
        """The first end of a pass, or of the piece, after `draw`."""
        if not self.blend.pass_draws:
            return self.stop_draw
        done = (draw - self.first_draw) // self.blend.pass_draws + 1
        return self.first_draw + done * self.blend.pass_draws


def counters_at(piece: Piece, draw: int) -> IntArray:
    """The draw counter of every source of the stream just before `draw`."""
    counters = piece.base.copy()
    counters[piece.members] += blending.counts_at(piece.blend, draw - piece.first_draw)
    return counters


def picks_between(pieces: tuple[Piece, ...], orders: tuple[SourceOrder, ...], first: int, stop: int) -> Picks:
    """The picks of the draws [first, stop), which must lie inside the pieces."""
    starts = [piece.first_draw for piece in pieces]
    parts = []
    while first < stop:
        piece = pieces[bisect_right(starts, first) - 1]
        end = stop if piece.stop_draw is None else min(stop, piece.stop_draw)
        assert first < end, "draws past the end of the stream"
        parts.append(_piece_picks(piece, orders, first, end))
        first = end
    if len(parts) == 1:
        return parts[0]
    empty = np.empty(0, np.int64)
    columns = [[empty, *column] for column in zip(*((p.source, p.epoch, p.row) for p in parts), strict=True)]
    source, epoch, row = (np.concatenate(column) for column in columns) if parts else (empty, empty, empty)
    return Picks(source, epoch, row)


def draw_of(
    pieces: tuple[Piece, ...], orders: tuple[SourceOrder, ...], source: int, epoch: int, row: int
) -> int | None:
    """The draw that gives a pick: the inverse of `picks_between`; None where the stream never draws it."""
    number = source_order.draw_of(orders[source], epoch, row)
    for piece in pieces:
        (member,) = np.nonzero(piece.members == source)
        if not len(member) or number < piece.base[source]:
            continue
        draw = piece.first_draw + blending.draw_of(piece.blend, int(member[0]), number - int(piece.base[source]))
        if piece.stop_draw is None or draw < piece.stop_draw:
            return draw
    return None


def _piece_picks(piece: Piece, orders: tuple[SourceOrder, ...], first: int, stop: int) -> Picks:
    if len(piece.members) == 1:  # nothing to blend: the draws of the piece are those of the source
        chosen = int(piece.members[0])
        begin = first - piece.first_draw + int(piece.base[chosen])
        epochs, rows = source_order.rows_between(orders[chosen], begin, begin + stop - first)
        return Picks(np.full(stop - first, chosen, np.int64), epochs, rows)
    members, numbers = blending.resolve(piece.blend, first - piece.first_draw, stop - piece.first_draw)
    source = piece.members[members]
    epoch = np.empty(len(source), np.int64)
    row = np.empty(len(source), np.int64)
    for positions in positions_by_value(members, len(piece.members)):
        if len(positions):
            chosen = int(source[positions[0]])
            begin = int(numbers[positions[0]]) + int(piece.base[chosen])
            epoch[positions], row[positions] = source_order.rows_between(orders[chosen], begin, begin + len(positions))
    return Picks(source, epoch, row)


def positions_by_value(values: IntArray, num_values: int) -> list[IntArray]:
    """The ascending positions of each value in [0, num_values)."""
    order, starts = counting_sort(values, num_values)
    return [order[starts[value] : starts[value + 1]] for value in range(num_values)]


def counting_sort(values: IntArray, num_values: int) -> tuple[IntArray, IntArray]:
    """Positions sorted by value, stably; those of value v stand in [starts[v], starts[v + 1])."""
    starts = np.zeros(num_values + 1, np.int64)
    np.cumsum(np.bincount(values, minlength=num_values), out=starts[1:])
    positions = np.empty(len(values), np.int64)
    _place(values, starts[:-1].copy(), positions)
    return positions, starts


@kernel
def _place(values: IntArray, place: IntArray, positions: IntArray) -> None:
    for i in range(len(values)):
        positions[place[values[i]]] = i
        place[values[i]] += 1
