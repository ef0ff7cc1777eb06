"""One window planned: from its number to steps of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playhead.order.picks import Picks, picks_between, positions_by_value
from playhead.plan.form import form
from playhead.plan.groups import Groups, padded_costs, total_lengths
from playhead.plan.rules import FixedRule, PackRule, Rule, effective, planned_lengths
from playhead.plan.segments import LengthsOf, Segment, Stream, present, segment_at, window_draws
from playhead.plan.steps import Arrangement, fixed_steps, whole_steps
from playhead.seeds import key
from playhead.types import IntArray


@dataclass(frozen=True)
class Window:
    """A planned window: micro-batch s * lanes + l of `groups` is lane l of step s. An empty one is idle.

    `lengths` are as planned (cut to the limit under `truncate`); None where the recipe has no lengths. `num_formed`
    counts the micro-batches before some were split to make whole steps.
    """

    number: int
    lanes: int
    first_draw: int
    stop_draw: int
    picks: Picks
    lengths: IntArray | None
    outputs: IntArray | None
    groups: Groups
    num_formed: int
    rule: Rule

    @property
    def num_steps(self) -> int:
        return len(self.groups) // self.lanes


def plan_window(stream: Stream, number: int) -> Window:
    """Plan a window. Law: the result depends on the stream and the number alone, and holds whole steps."""
    segment = segment_at(stream, number)
    first, stop = window_draws(segment, number)
    picks = picks_between(segment.pieces, stream.orders, first, stop)
    if segment.excluded:
        picks = picks.take(present(segment, picks.source, picks.row))
    lengths = _look_up(stream.lengths_of, picks)
    planned = None if lengths is None else planned_lengths(segment.rule, lengths)
    outputs = _look_up(stream.outputs_of, picks)
    formed = form(segment.rule, len(picks), planned, outputs)
    groups = _into_steps(formed, segment, planned, _arrangement(stream, segment, number))
    return Window(number, segment.lanes, first, stop, picks, planned, outputs, groups, len(formed), segment.rule)


def _into_steps(formed: Groups, segment: Segment, lengths: IntArray | None, how: Arrangement) -> Groups:
    rule = segment.rule
    if lengths is None:
        assert isinstance(rule, FixedRule), "the recipe check requires lengths"
        return fixed_steps(formed, None, rule.size, how)
    if isinstance(rule, PackRule):
        return whole_steps(formed, lambda groups: total_lengths(groups, lengths), how)
    cost = effective(rule, lengths)
    if isinstance(rule, FixedRule):
        return fixed_steps(formed, lambda groups: padded_costs(groups, cost), rule.size, how)
    return whole_steps(formed, lambda groups: padded_costs(groups, cost), how)


def _arrangement(stream: Stream, segment: Segment, number: int) -> Arrangement:
    return Arrangement(
        segment.lanes,
        1 if isinstance(segment.rule, PackRule) else segment.balance,
        stream.in_order,
        key(stream.seed, "steps", stream.name, number),
        key(stream.seed, "lanes", stream.name, number),
    )


def _look_up(tables: tuple[LengthsOf | None, ...], picks: Picks) -> IntArray | None:
    if any(table is None for table in tables):
        return None
    if len(tables) == 1 and tables[0] is not None:
        return tables[0](picks.row).astype(np.int64)
    lengths = np.empty(len(picks), np.int64)
    for positions, table in zip(positions_by_value(picks.source, len(tables)), tables, strict=True):
        if table is not None and len(positions):
            lengths[positions] = table(picks.row[positions])
    return lengths
