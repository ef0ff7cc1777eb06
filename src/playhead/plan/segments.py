"""Stretches of the stream under unchanged rules, and which draws each window of them covers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from playhead.errors import EndOfStreamError
from playhead.order.picks import Piece, counters_at
from playhead.order.source_order import SourceOrder
from playhead.plan.rules import Rule
from playhead.recipe.units import ceil_div
from playhead.types import IntArray, LengthArray

LengthsOf = Callable[[IntArray], LengthArray]


@dataclass(frozen=True)
class Segment:
    """From `first_window` (which begins at `first_draw` and delivers `first_step`) on, until the next segment.

    `excluded` holds the rows, by source, whose draws yield no sample.
    """

    first_window: int
    first_step: int
    first_draw: int
    pieces: tuple[Piece, ...]
    window_size: int
    lanes: int
    balance: int
    rule: Rule
    excluded: dict[int, IntArray] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """One sub-stream: its sources, and its segments in order.

    `lengths_of[s]` and `outputs_of[s]` look lengths of rows of source s up; None where a source has none. A round of a
    finite stream is `epochs` passes, or all there is; window numbers run on from one round to the next.
    """

    name: str
    seed: int
    source_names: tuple[str, ...]
    orders: tuple[SourceOrder, ...]
    lengths_of: tuple[LengthsOf | None, ...]
    outputs_of: tuple[LengthsOf | None, ...]
    segments: tuple[Segment, ...]
    epochs: int | None = None
    _later_rounds: dict[int, Segment] = field(default_factory=dict, compare=False, repr=False)

    @property
    def in_order(self) -> bool:
        return all(order.shuffle == "none" for order in self.orders)


def segment_at(stream: Stream, window: int) -> Segment:
    if stream.epochs is None and (number := round_of(stream, window)):
        return _later_round(stream, number)
    if len(stream.segments) == 1:
        return stream.segments[0]
    starts = [segment.first_window for segment in stream.segments]
    return stream.segments[bisect_right(starts, window) - 1]


def _later_round(stream: Stream, number: int) -> Segment:
    """All there is once more: the same sources draw by draw, each read from the start of its next unused epoch."""
    known = stream._later_rounds.get(number)  # noqa: SLF001  # its own module
    if known is not None:
        return known
    (segment,) = stream.segments
    num_windows = round_end(stream, 0)
    num_draws = segment.pieces[-1].stop_draw
    assert num_windows is not None
    assert num_draws is not None
    rows = np.array([order.num_rows for order in stream.orders], np.int64)
    skipped = number * rows * _epochs_begun(stream)
    pieces = tuple(
        replace(
            piece,
            first_draw=piece.first_draw + number * num_draws,
            stop_draw=None if piece.stop_draw is None else piece.stop_draw + number * num_draws,
            base=piece.base + skipped,
        )
        for piece in segment.pieces
    )
    later = replace(segment, first_window=number * num_windows, first_draw=number * num_draws, pieces=pieces)
    stream._later_rounds[number] = later  # noqa: SLF001
    return later


def _epochs_begun(stream: Stream) -> IntArray:
    """How many epochs of every source the first round of a finite stream begins."""
    rows = np.array([order.num_rows for order in stream.orders], np.int64)
    return -(-_drawn_in_round(stream) // rows)


def _drawn_in_round(stream: Stream) -> IntArray:
    """How often the first round of a finite stream draws every source."""
    last = stream.segments[-1].pieces[-1]
    assert last.stop_draw is not None
    return counters_at(last, last.stop_draw)


def window_draws(segment: Segment, window: int) -> tuple[int, int]:
    """The draws [first, stop) of a window. Law: windows are contiguous, and none crosses a pass or the end."""
    nth = window - segment.first_window
    size = segment.window_size
    start = segment.first_draw
    end = _pass_end(segment)
    in_first_pass = None if end is None else ceil_div(end - start, size)
    pass_draws = segment.pieces[0].blend.pass_draws
    if pass_draws and in_first_pass is not None and nth >= in_first_pass:
        assert end is not None
        passes, nth = divmod(nth - in_first_pass, ceil_div(pass_draws, size))
        start = end + passes * pass_draws
        end = start + pass_draws
    stop = segment.pieces[-1].stop_draw
    first = start + nth * size
    if stop is not None and first >= stop:
        raise EndOfStreamError(f"window {window} is past the end of the stream", expected=f"draws below {stop:,}")
    return first, first + size if end is None else min(first + size, end)


def round_end(stream: Stream, number: int) -> int | None:
    """The first window after a round; None where the stream is endless."""
    end = _round_end_draw(stream, number)
    if end is None:
        return None
    segment = next((s for s in reversed(stream.segments) if s.first_draw < end), stream.segments[0])
    size, pass_draws = segment.window_size, segment.pieces[0].blend.pass_draws
    if stream.epochs is None:
        return (number + 1) * (segment.first_window + ceil_div(end - segment.first_draw, size))
    first_end = _pass_end(segment)
    assert first_end is not None
    count = segment.first_window + ceil_div(min(first_end, end) - segment.first_draw, size)
    return count + (end - first_end) // pass_draws * ceil_div(pass_draws, size)


def round_of(stream: Stream, window: int) -> int:
    """The round a window belongs to."""
    if stream.epochs is None:
        num_windows = round_end(stream, 0)
        return 0 if num_windows is None else window // num_windows
    first = stream.segments[0].pieces[0]
    draw, _ = window_draws(segment_at(stream, window), window)
    return (draw - first.first_draw) // (stream.epochs * first.blend.pass_draws)


def _round_end_draw(stream: Stream, number: int) -> int | None:
    """The draw after a round of passes; of other streams, where the first round ends."""
    if stream.epochs is None:
        return stream.segments[-1].pieces[-1].stop_draw
    first = stream.segments[0].pieces[0]
    return first.first_draw + (number + 1) * stream.epochs * first.blend.pass_draws


def amended(stream: Stream, window: int, first_step: int, **changes: object) -> Stream:
    """The stream with a new segment from `window` on, in which the given fields of `Segment` are others.

    Draws go on where they were; new `pieces` must begin at that draw with `counters_before(stream, window)`.
    """
    current = segment_at(stream, window)
    first_draw, _ = window_draws(current, window)
    segment = replace(
        current,
        first_window=window,
        first_step=first_step,
        first_draw=first_draw,
        **changes,  # type: ignore[arg-type]
    )
    kept = tuple(old for old in stream.segments if old.first_window < window)
    return replace(stream, segments=(*kept, segment))


def counters_before(stream: Stream, window: int) -> IntArray:
    """The draw counter of every source where a window begins."""
    segment = segment_at(stream, window)
    draw, _ = window_draws(segment, window)
    starts = [piece.first_draw for piece in segment.pieces]
    return counters_at(segment.pieces[bisect_right(starts, draw) - 1], draw)


def draws_before(stream: Stream, window: int) -> list[tuple[IntArray, IntArray]]:
    """What the windows before one have drawn: the draw counters (from, to) of every source, for each round.

    Passes draw on without a gap; other rounds begin at an epoch of their own.
    """
    counters = counters_before(stream, window)
    number = round_of(stream, window) if stream.epochs is None else 0
    if not number:
        return [(np.zeros_like(counters), counters)]
    skipped = _later_round(stream, 1).pieces[0].base
    drawn = _drawn_in_round(stream)
    return [(i * skipped, i * skipped + drawn) for i in range(number)] + [(number * skipped, counters)]


def present(segment: Segment, source: IntArray, row: IntArray) -> IntArray:
    """The positions of draws that yield a sample: those of excluded rows are holes."""
    keep = np.ones(len(source), np.bool_)
    for excluded_source, rows in segment.excluded.items():
        keep &= ~((source == excluded_source) & np.isin(row, rows))
    return np.flatnonzero(keep)


def _pass_end(segment: Segment) -> int | None:
    """Where the pass under way at the segment's first draw ends: the end of the stream where there are no passes."""
    first = segment.pieces[0]
    return first.pass_end(segment.first_draw) if first.blend.pass_draws else segment.pieces[-1].stop_draw
