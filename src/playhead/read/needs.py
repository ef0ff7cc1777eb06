"""The bytes that the next steps of a stream need, known from the plan before anything is read.

Only rows of the plan are counted. Media that rows name by a path, rows that replace bad samples, and noises of
augmentations are found while samples are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct

from playhead.deal import lanes_left
from playhead.index.layout import FileEntry
from playhead.index.table import Table
from playhead.order.picks import Picks, positions_by_value
from playhead.plan.cursor import Cursor
from playhead.plan.plan import Plan
from playhead.plan.step_range import LaidOut, StepRange
from playhead.recipe.tree import Leaf
from playhead.store import Stamp
from playhead.types import IntArray, UIntArray

Sources = Sequence[Sequence[tuple[Leaf, Table]]]

_STEPS_AT_A_TIME = 64
_ALL = slice(None)


class Needed(Struct, frozen=True):
    """Byte ranges of one file: an entry for each row, in the order in which they are needed.

    In a track of blocks it is the block of the row. A file of a shard in which rows have no bytes of their own is
    needed whole. Of a compressed file, stamp and bytes are those of its decompressed view.
    """

    path: str
    stamp: Stamp
    firsts: UIntArray
    ends: UIntArray


class StepNeeds(Struct, frozen=True):
    """What one step needs: each file once, in the order in which they are first needed."""

    step: int
    files: list[Needed]


def needed_steps(
    plan: Plan,
    sources: Sources,
    start: Cursor | None = None,
    ranks: Collection[int] | None = None,
    world_size: int = 1,
) -> Iterator[StepNeeds]:
    """What each step from a cursor to the end of its round needs: of all ranks, or of some of a world.

    Law: the files and ranges of a step are those of the micro-batches that these ranks deliver, idle ones included.
    """
    for step, parts in picked_steps(plan, start, ranks, world_size):
        found = [needed for stream, picks in parts for needed in _needed(sources[stream], picks)]
        yield StepNeeds(step, _merged(found))


def picked_steps(
    plan: Plan, start: Cursor | None = None, ranks: Collection[int] | None = None, world_size: int = 1
) -> Iterator[tuple[int, list[tuple[int, Picks]]]]:
    """The steps from a cursor to the end of its round: the number of each, and its picks with their sub-streams."""
    cursor = plan.start() if start is None else start
    number = plan.round_of(cursor)
    alone = None if ranks is None or len(ranks) > 1 else next(iter(ranks))
    chosen = None if ranks is None or alone is not None else frozenset(ranks)
    lanes = _ALL if alone is None else lanes_left(alone, world_size, 0)
    while plan.round_of(cursor) == number:
        steps = plan.steps_at(cursor, lanes, _STEPS_AT_A_TIME)
        if steps is None:
            return
        for nth in range(len(steps)):
            yield steps.settled.step + nth, [*_picks(steps, nth, chosen, world_size)]
        cursor = steps.after


def _picks(steps: StepRange, nth: int, ranks: frozenset[int] | None, world_size: int) -> Iterator[tuple[int, Picks]]:
    """The picks of a step by sub-stream, as few arrays as there can be."""
    if steps.filled is not None:
        for batch in steps.filled:
            if ranks is None or batch.lane % world_size in ranks:
                yield batch.stream, batch.picks
        return
    for found in steps.laid_out:
        first = nth * len(found.lanes)
        if ranks is None:
            yield found.stream, _between(found, first, first + len(found.lanes))
            continue
        for m, lane in enumerate(found.lanes, first):
            if lane % world_size in ranks:
                yield found.stream, _between(found, m, m + 1)


def _between(found: LaidOut, first: int, end: int) -> Picks:
    a, b, picks = found.starts[first], found.starts[end], found.picks
    return Picks(picks.source[a:b], picks.epoch[a:b], picks.row[a:b])


def _needed(sources: Sequence[tuple[Leaf, Table]], picks: Picks) -> list[Needed]:
    """What picks of a sub-stream need. A file may come more than once."""
    if len(sources) == 1:
        return _needed_of(sources[0][1], picks.row) if len(picks) else []
    return [
        needed
        for number, positions in enumerate(positions_by_value(picks.source, len(sources)))
        if len(positions)
        for needed in _needed_of(sources[number][1], picks.row[positions])
    ]


def _needed_of(table: Table, rows: IntArray) -> list[Needed]:
    """What rows of one source need, shard after shard in the order of their first rows."""
    index = table.index
    shards, places = index.places(table.raw_rows(rows))
    roles, entries = index.meta.roles, index.meta.shards
    found: list[Needed] = []
    for shard, chosen in _by_shard(shards, len(rows)):
        for role, file in zip(roles, entries[shard].files, strict=True):
            at = places.get(role)
            if at is None:
                found.append(_whole(file))
            else:
                found.append(Needed(file.path, file.stamp, at.firsts[chosen], at.ends[chosen]))
    return found


def _by_shard(shards: IntArray, num_rows: int) -> Iterator[tuple[int, IntArray | slice]]:
    if len(shards) == 1 or not np.count_nonzero(shards != shards[0]):
        yield int(shards[0]), slice(0, num_rows)
        return
    order = np.argsort(shards, kind="stable")
    sorted_shards = shards[order]
    cuts = np.flatnonzero(np.diff(sorted_shards)) + 1
    begins = np.concatenate(([0], cuts, [num_rows])).tolist()
    firsts = order[begins[:-1]]
    for i in np.argsort(firsts).tolist():
        chosen = order[begins[i] : begins[i + 1]]
        yield int(shards[chosen[0]]), chosen


def _whole(file: FileEntry) -> Needed:
    return Needed(file.path, file.stamp, np.zeros(1, np.uint64), np.array([file.size], np.uint64))


def _merged(found: Sequence[Needed]) -> list[Needed]:
    """Each file once, where first needed: sources, sub-streams, lanes and shards may share files."""
    by_path: dict[str, list[Needed]] = {}
    for needed in found:
        by_path.setdefault(needed.path, []).append(needed)
    return [same[0] if len(same) == 1 else _joined(same) for same in by_path.values()]


def _joined(same: list[Needed]) -> Needed:
    firsts, ends = np.concatenate([each.firsts for each in same]), np.concatenate([each.ends for each in same])
    return Needed(same[0].path, same[0].stamp, firsts, ends)
