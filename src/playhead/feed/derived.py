"""Samples and length of each source, worked out from the plan where there are too many sources to count in a state.

A source is walked in its own order, so what was drawn of it before a window is the first n draws of its walk.
"""

from __future__ import annotations

import numpy as np

from playhead.feed.state import Position
from playhead.order.walk import rows_between
from playhead.plan.plan import Plan
from playhead.plan.rules import planned_lengths
from playhead.plan.segments import Stream, counters_before, segment_at
from playhead.types import IntArray

_ROWS_AT_A_TIME = 1 << 20


def by_source(plan: Plan, position: Position) -> list[tuple[str, int, int]]:
    """(name, samples, length) of every source so far. The length costs a look at each row of an epoch."""
    parts = {part.stream: part for part in plan.parts_at(position.cursor)}
    found = []
    for i, (stream, place) in enumerate(zip(plan.streams, position.cursor.places, strict=True)):
        before = counters_before(stream, place.window)
        done = place.step * segment_at(stream, place.window).lanes
        part = parts.get(i)
        if part is not None and part.place is not None:
            done += len(range(position.lanes_done)[part.lanes.start :: part.lanes.step])
        samples, lengths = _in_window(plan, i, place.window, done)
        for source, count in enumerate(before.tolist()):
            length = _length(stream, source, count) + int(lengths[source])
            found.append((stream.source_names[source], count + int(samples[source]), length))
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


def _length(stream: Stream, source: int, num_draws: int) -> int:
    """The planned length of a source's first draws: whole epochs are alike."""
    if stream.lengths_of[source] is None:
        return 0
    epochs, rest = divmod(num_draws, stream.walks[source].num_rows)
    whole = _walked(stream, source, stream.walks[source].num_rows, 0) if epochs else 0
    return epochs * whole + _walked(stream, source, rest, epochs)


def _walked(stream: Stream, source: int, num_draws: int, epoch: int) -> int:
    walk, lengths_of = stream.walks[source], stream.lengths_of[source]
    assert lengths_of is not None
    total = 0
    start = epoch * walk.num_rows
    for first in range(start, start + num_draws, _ROWS_AT_A_TIME):
        _, rows = rows_between(walk, first, min(first + _ROWS_AT_A_TIME, start + num_draws))
        lengths = lengths_of(rows).astype(np.int64)
        total += int(planned_lengths(stream.segments[0].rule, lengths).sum())
    return total
