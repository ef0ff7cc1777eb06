"""Totals by source. Where there are too many sources to count in a state, they are computed from the plan.

A source is read in its own order, so what a round has drawn of it before a window is a span of its draws.
"""

from __future__ import annotations

import numpy as np

from playhead.deal import num_done
from playhead.feed.state import Position
from playhead.feed.totals import Totals
from playhead.order.source_order import rows_between
from playhead.plan.plan import Plan
from playhead.plan.rules import planned_lengths
from playhead.plan.segments import Stream, draws_before, segment_at
from playhead.recipe.values import SUM_NAME
from playhead.types import IntArray

_ROWS_AT_A_TIME = 1 << 20


def totals_of(plan: Plan, position: Position) -> dict[str, Totals]:
    """Samples, length and padding delivered up to a position, under "all" and by source."""
    counts = position.totals
    names = [name for stream in plan.streams for name in stream.source_names]
    rows: list[tuple[str, int, int, int | None]]
    if len(counts) == len(names):
        rows = [(name, *row) for name, row in zip(names, counts.tolist(), strict=True)]
    else:
        rows = [(*found, None) for found in by_source(plan, position)]
    totals: dict[str, Totals] = {}
    for name, samples, length, padding in rows:  # a source has a row for each of its parts
        known = totals.get(name, Totals(0, 0, 0))
        more = None if padding is None or known.padding is None else known.padding + padding
        totals[name] = Totals(known.samples + samples, known.length + length, more)
    return totals | {SUM_NAME: Totals(*counts.sum(axis=0).tolist())}


def by_source(plan: Plan, position: Position) -> list[tuple[str, int, int]]:
    """(name, samples, length) of every source so far. The length costs a pass over the rows of an epoch."""
    parts = {part.stream: part for part in plan.parts_at(position.cursor)}
    found = []
    for i, (stream, place) in enumerate(zip(plan.streams, position.cursor.places, strict=True)):
        before = draws_before(stream, place.window)
        done = place.step * segment_at(stream, place.window).lanes
        part = parts.get(i)
        if part is not None and part.place is not None:
            done += num_done(part.lanes, position.lanes_done)
        samples, lengths = _in_window(plan, i, place.window, done)
        for source, name in enumerate(stream.source_names):
            spans = [(int(first[source]), int(end[source])) for first, end in before]
            count = sum(end - first for first, end in spans) + int(samples[source])
            found.append((name, count, _length(stream, source, spans) + int(lengths[source])))
    return found


def _in_window(plan: Plan, stream: int, number: int, num_batches: int) -> tuple[IntArray, IntArray]:
    """Samples and length of each source in the first micro-batches of a window."""
    num_sources = len(plan.streams[stream].source_names)
    if not num_batches:
        return np.zeros(num_sources, np.int64), np.zeros(num_sources, np.int64)
    window = plan.window(stream, number)
    members = window.groups.members[: window.groups.starts[num_batches]]
    source = window.picks.source[members]
    lengths = np.zeros(num_sources, np.int64)
    if window.lengths is not None:
        np.add.at(lengths, source, window.lengths[members])
    return np.bincount(source, minlength=num_sources), lengths


def _length(stream: Stream, source: int, spans: list[tuple[int, int]]) -> int:
    """The planned length of a source's draws in spans that begin with an epoch; all whole epochs have equal length."""
    if stream.lengths_of[source] is None:
        return 0
    num_rows = stream.orders[source].num_rows
    total = num_epochs = 0
    for first, end in spans:
        epochs, rest = divmod(end - first, num_rows)
        num_epochs += epochs
        total += _length_between(stream, source, end - rest, end)
    return total + (num_epochs * _length_between(stream, source, 0, num_rows) if num_epochs else 0)


def _length_between(stream: Stream, source: int, start: int, end: int) -> int:
    order, lengths_of = stream.orders[source], stream.lengths_of[source]
    assert lengths_of is not None
    total = 0
    for first in range(start, end, _ROWS_AT_A_TIME):
        _, rows = rows_between(order, first, min(first + _ROWS_AT_A_TIME, end))
        lengths = lengths_of(rows).astype(np.int64)
        total += int(planned_lengths(stream.segments[0].rule, lengths).sum())
    return total
