"""The receipt: a 64-bit rolling digest of the planned picks of every step so far.

r' = H(r, step, for each busy lane its number, its count and its picks as (hash of source name, epoch, row), in order),
sub-stream after sub-stream where a step has lanes of several.
Every rank computes it over all lanes, so ranks can compare eight bytes; idle lanes do not enter it.
"""

from __future__ import annotations

import numpy as np

from playhead.order.hashing import fold64
from playhead.plan.window import Window
from playhead.seeds import fold
from playhead.types import IntArray, UIntArray, kernel

START = 0


def begin_step(receipt: int, step: int) -> int:
    return fold(receipt, step)


def fold_lanes(receipt: int, window: Window, step: int, lanes: range, source_hashes: UIntArray) -> int:
    """Extend the receipt by the planned micro-batches of a sub-stream in a step, which have these lanes."""
    at = step * window.lanes
    starts = window.groups.starts[at : at + window.lanes + 1]
    picks = window.picks
    folded = _fold(
        np.uint64(receipt),
        lanes.start,
        lanes.step,
        starts,
        window.groups.members,
        source_hashes,
        picks.source,
        picks.epoch,
        picks.row,
    )
    return int(folded)


def fold_steps(
    receipt: int, number: int, count: int, window: Window, step: int, lanes: range, source_hashes: UIntArray
) -> list[int]:
    """The receipt after each of `count` steps that only one sub-stream has lanes of, from step `number` on.

    Law: `begin_step` and `fold_lanes` for each in turn.
    """
    at = step * window.lanes
    starts = window.groups.starts[at : at + count * window.lanes + 1]
    picks = window.picks
    found = np.empty(count, np.uint64)
    _fold_steps(
        np.uint64(receipt),
        number,
        lanes.start,
        lanes.step,
        starts,
        window.groups.members,
        source_hashes,
        picks.source,
        picks.epoch,
        picks.row,
        found,
    )
    return found.tolist()


@kernel
def _fold(
    receipt: np.uint64,
    first_lane: int,
    stride: int,
    starts: IntArray,
    members: IntArray,
    hashes: UIntArray,
    source: IntArray,
    epoch: IntArray,
    row: IntArray,
) -> np.uint64:
    for lane in range(len(starts) - 1):
        count = starts[lane + 1] - starts[lane]
        if count == 0:
            continue
        receipt = fold64(fold64(receipt, np.uint64(first_lane + lane * stride)), np.uint64(count))
        for i in range(starts[lane], starts[lane + 1]):
            sample = members[i]
            pick = fold64(fold64(hashes[source[sample]], np.uint64(epoch[sample])), np.uint64(row[sample]))
            receipt = fold64(receipt, pick)
    return receipt


@kernel
def _fold_steps(
    receipt: np.uint64,
    number: int,
    first_lane: int,
    stride: int,
    starts: IntArray,
    members: IntArray,
    hashes: UIntArray,
    source: IntArray,
    epoch: IntArray,
    row: IntArray,
    found: UIntArray,
) -> None:
    lanes = (len(starts) - 1) // len(found)
    for nth in range(len(found)):
        own = starts[nth * lanes : (nth + 1) * lanes + 1]
        receipt = fold64(receipt, np.uint64(number + nth))
        receipt = _fold(receipt, first_lane, stride, own, members, hashes, source, epoch, row)
        found[nth] = receipt
