"""Lanes dealt to ranks: the only arithmetic on lanes, ranks and world sizes."""

from __future__ import annotations

from math import gcd

from playhead.errors import WorldSizeError


def lanes_of_rank(rank: int, world_size: int, lanes: int) -> range:
    """Rank r takes lanes r, r + world, ... of every step.

    Law: over all ranks every lane is taken once, and every rank takes as many.
    """
    check_world(rank, world_size, lanes)
    return range(rank, lanes, world_size)


def lanes_per_rank(lanes: int, world_size: int) -> int:
    """How many micro-batches of a step each rank takes."""
    return lanes // world_size


def lanes_left(rank: int, world_size: int, lanes_done: int) -> slice:
    """The lanes that a rank still takes of a step of which all ranks together have done the first `lanes_done`.

    Law: they are the rank's lanes from `lanes_done` on; where none are done, all of them. A slice, for the lanes of a
    step are known only with the step.
    """
    return slice(lanes_done + rank, None, world_size)


def after_lane(lane: int, rank: int, world_size: int, lanes: int) -> tuple[int, bool]:
    """The lanes done once every rank has delivered as much as this one up to `lane`, and whether the step is over.

    Law: every rank gets the same answers in the same order, and only the last says that the step is over.
    """
    lanes_done = lane - rank + world_size
    return lanes_done, lanes_done == lanes


def num_done(lanes: range, lanes_done: int) -> int:
    """How many of some lanes of a step (those of a sub-stream) are among its first `lanes_done`."""
    return len(range(lanes_done)[lanes.start : lanes.stop : lanes.step])


def worlds_that_fit(lanes: int, lanes_done: int = 0) -> list[int]:
    """The world sizes that can deliver the rest of a step of which `lanes_done` lanes are done."""
    common = gcd(lanes, lanes_done)
    return [world for world in range(1, common + 1) if common % world == 0]


def check_world(rank: int, world_size: int, lanes: int, split: str | None = None) -> None:
    """Refuse a rank that does not exist, and ranks that lanes (those of an evaluation set: `split`) do not fit."""
    if world_size < 1 or not 0 <= rank < world_size:
        raise WorldSizeError(
            f"rank {rank} of {world_size} ranks does not exist",
            expected="a world size of at least 1 and a rank from 0 to world size - 1",
        )
    if lanes % world_size:
        multiple = -(-lanes // world_size) * world_size
        new = f"start a new run with `lanes: {multiple}` in the recipe"
        if split is not None:
            new = f"write `lanes: {multiple}` under `evaluation.{split}` in the recipe"
        raise WorldSizeError(
            f"{world_size} ranks cannot share {lanes} lanes evenly",
            found=f"world_size {world_size}, lanes {lanes}",
            expected=f"a world size that divides {lanes}: {', '.join(map(str, worlds_that_fit(lanes)))}",
            fix=f"run on one of those, or {new}",
        )
