"""What happens when a source has given all its rows: the pieces of each policy."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from playhead.order import blend as blending
from playhead.order.blend import Blend
from playhead.order.picks import Piece, counters_at
from playhead.order.shares import passes, weighted
from playhead.seeds import extend, key
from playhead.types import IntArray


@dataclass(frozen=True)
class Mixture:
    """What is blended, and how: sources of the stream, their weights and rows, and the `blend_key`."""

    members: IntArray
    weights: tuple[Fraction, ...]
    num_rows: IntArray
    key: int


def blend_key(seed: int, stream: str, segment: int) -> int:
    """The key of the blends in a segment; pieces and blocks, which are numbered from 0 in each segment, extend it."""
    return key(seed, "blend", stream, segment)


def pieces_of(mixture: Mixture, policy: str, epochs: int | None, first_draw: int, base: IntArray) -> tuple[Piece, ...]:
    """The pieces from `first_draw` on, where the sources' draw counters stand at `base`.

    - `epochs`: every row once a pass, pass after pass; the stream says after how many it pauses;
    - `repeat`: endless;
    - `stop_first`: ends right after the draw that takes a source's last row;
    - `stop_all`: ends when the last source has finished its first epoch;
    - `drop`: a source that has given its last row leaves, the others go on with their shares.
    """
    if epochs is not None:
        blend, order = passes([int(n) for n in mixture.num_rows], mixture.key)
        return (Piece(first_draw, None, mixture.members[order], base, blend),)
    piece = Piece(first_draw, None, mixture.members, base, weighted(list(mixture.weights), extend(mixture.key, 0)))
    if policy == "repeat":
        return (piece,)
    if policy == "drop":
        return _dropping(mixture, piece)
    ends = _ends(mixture, piece)
    return (_cut(piece, min(ends) if policy == "stop_first" else max(ends)),)


def _ends(mixture: Mixture, piece: Piece) -> list[int]:
    """For each member, the draw right after the one that takes its last row."""
    left = mixture.num_rows - piece.base[mixture.members]
    return [
        piece.first_draw + (blending.draw_of(piece.blend, i, int(n) - 1) + 1 if n > 0 else 0)
        for i, n in enumerate(left)
    ]


def _cut(piece: Piece, stop: int) -> Piece:
    return Piece(piece.first_draw, stop, piece.members, piece.base, piece.blend)


def _dropping(mixture: Mixture, piece: Piece) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    left = mixture
    while True:
        ends = _ends(left, piece)
        piece = _cut(piece, min(ends))
        pieces.append(piece)
        going = [i for i, end in enumerate(ends) if end > min(ends)]
        if not going:
            return tuple(pieces)
        left = Mixture(left.members[going], tuple(left.weights[i] for i in going), left.num_rows[going], mixture.key)
        assert piece.stop_draw is not None
        base = counters_at(piece, piece.stop_draw)
        blend: Blend = weighted(list(left.weights), extend(mixture.key, len(pieces)))
        piece = Piece(piece.stop_draw, None, left.members, base, blend)
