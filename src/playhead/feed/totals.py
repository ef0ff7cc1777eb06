"""What has been delivered so far, counted from the plan: exact after any resume, and equal on all ranks.

Counts are kept by source while there are few enough to fit a checkpoint, else for the stream as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playhead.plan.plan import Plan
from playhead.plan.rules import PackRule
from playhead.plan.window import Window
from playhead.types import IntArray, kernel

MOST_SOURCES = 12  # with 10^13 tokens of each, a state is still under 1 KiB
COLUMNS = 3  # samples, length, padding


@dataclass(frozen=True)
class Totals:
    """Samples, their length and the padding around them, in the plan's units.

    Padding is what fills micro-batches up to their longest sample, or the free space of packs (counted for the source
    of a pack's first sample); None for a single source if there are too many sources to count it by source.
    """

    samples: int
    length: int
    padding: int | None


def num_rows(plan: Plan) -> int:
    """The number of rows of counts: one for each source, or one in total."""
    names = sum(len(stream.source_names) for stream in plan.streams)
    return names if names <= MOST_SOURCES else 1


def nothing_yet(plan: Plan) -> IntArray:
    return np.zeros((num_rows(plan), COLUMNS), np.int64)


def running_totals(plan: Plan, stream: int, window: Window) -> IntArray:
    """Entry m holds the totals of the window's first m micro-batches: an array (micro-batches + 1, rows, 3)."""
    rows = num_rows(plan)
    by_source = rows > 1 or sum(len(s.source_names) for s in plan.streams) == 1
    first = sum(len(s.source_names) for s in plan.streams[:stream]) if by_source else 0
    out = np.zeros((len(window.groups) + 1, rows, COLUMNS), np.int64)
    lengths = np.zeros(len(window.picks), np.int64) if window.lengths is None else window.lengths
    pack_length = window.rule.max_length if isinstance(window.rule, PackRule) else 0
    row_of = window.picks.source + first if by_source else np.zeros(len(window.picks), np.int64)
    _tally(window.groups.members, window.groups.starts, row_of, lengths, pack_length, out)
    return np.cumsum(out, axis=0)


@kernel
def _tally(
    members: IntArray, starts: IntArray, row_of: IntArray, lengths: IntArray, pack_length: int, out: IntArray
) -> None:
    for g in range(len(starts) - 1):
        longest = 0
        total = 0
        for i in range(starts[g], starts[g + 1]):
            longest = max(longest, lengths[members[i]])
            total += lengths[members[i]]
        for i in range(starts[g], starts[g + 1]):
            sample = members[i]
            row = row_of[sample]
            out[g + 1, row, 0] += 1
            out[g + 1, row, 1] += lengths[sample]
            if pack_length == 0:
                out[g + 1, row, 2] += longest - lengths[sample]
            elif i == starts[g]:
                out[g + 1, row, 2] += max(0, pack_length - total)
