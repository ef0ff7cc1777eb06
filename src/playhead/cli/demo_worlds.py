"""The guarantee checked on the plan: on 1, 2, 4 and 8 ranks, and ten million steps on."""

from __future__ import annotations

import time
from itertools import islice

from rich.console import Console

from playhead.cli.screen import grid
from playhead.deal import lanes_of_rank
from playhead.fingerprint import digest
from playhead.index.table import Table
from playhead.inspect.summary import summarise
from playhead.plan.cursor import Cursor, Place
from playhead.plan.plan import Plan
from playhead.recipe.values import Recipe
from playhead.resolve import plan_tables

WORLDS = (1, 2, 4, 8)
STEPS = 100
FAR = 10_000_000
REPEATS = 5


def show_worlds(screen: Console, recipe: Recipe, tables: dict[str, Table]) -> bool:
    """Deal the same steps to several numbers of ranks; returns whether all were dealt the same stream."""
    titles = (">ranks", ">batches each", ">samples in all", ">samples, digest", ">receipt on every rank")
    table = grid(*titles)
    seen = set()
    for world in WORLDS:
        dealt = [_deal_to(plan_tables(recipe, tables, world_size=world), rank, world) for rank in range(world)]
        whole = sorted(batch for batches, _ in dealt for batch in batches)
        receipts = sorted({f"{receipt:016x}" for _, receipt in dealt})
        samples = digest(whole)
        seen.add((samples, *receipts))
        num_samples = sum(len(picks) for _, _, picks in whole)
        table.add_row(str(world), f"{len(dealt[0][0]):,}", f"{num_samples:,}", samples[:16], " ".join(receipts))
    screen.print(table)
    equal = len(seen) == 1 and len(seen.pop()) == 2
    if equal:
        screen.print("the same samples in the same steps, whatever the number of ranks", style="green")
    else:
        screen.print("the ranks were dealt different streams", style="bold red")
    return equal


def _deal_to(plan: Plan, rank: int, world: int) -> tuple[list[tuple[int, int, list[list[int]]]], int]:
    """The micro-batches dealt to one rank, as (step, lane, picks), and its receipt at the end."""
    batches = []
    receipt = 0
    lanes = lanes_of_rank(rank, world, plan.lanes)
    for step, _ in islice(plan.steps(), STEPS):
        assert step.receipt is not None
        receipt = step.receipt
        for lane in lanes:
            batch = step.micro_batches[lane]
            picks = [batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist()]
            named = [[batch.stream, *pick] for pick in zip(*picks, strict=True)]
            batches.append((step.number, lane, named))
    return batches, receipt


def show_distance(screen: Console, recipe: Recipe, tables: dict[str, Table]) -> None:
    """Open the plan from a cursor alone, as a resumed job does, near the start and far into the stream."""
    plan = plan_tables(recipe, tables)
    steps_per_window = [summarise(plan, i, 2).steps_per_window for i in range(len(plan.streams))]
    assert plan.fuse is not None
    turns = [share / plan.fuse.total for share in plan.fuse.shares.tolist()]
    table = grid(">step", ">windows of the sub-streams", ">opened and planned in")
    for step in (10, FAR):
        windows = [int(step * turn / steps) for turn, steps in zip(turns, steps_per_window, strict=True)]
        cursor = Cursor(step, tuple(Place(window, 0) for window in windows), step, None)
        best = min(_opening_seconds(recipe, tables, cursor) for _ in range(REPEATS))
        table.add_row(f"{step:,}", ", ".join(f"{w:,}" for w in windows), f"{best * 1000:.1f} ms")
    screen.print(table)


def _opening_seconds(recipe: Recipe, tables: dict[str, Table], cursor: Cursor) -> float:
    begin = time.perf_counter()
    plan_tables(recipe, tables).step_at(cursor)
    return time.perf_counter() - begin
