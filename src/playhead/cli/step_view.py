"""One step of the plan, pick by pick, on the terminal or as JSON."""

from __future__ import annotations

from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from playhead.cli.screen import console, grid, print_json
from playhead.deal import lanes_of_rank
from playhead.feed.ledger import seek, steps_to_plan
from playhead.index.table import Table
from playhead.plan.cursor import Cursor
from playhead.plan.plan import Plan
from playhead.plan.step import MicroBatch, Step
from playhead.recipe.tree import Leaf, branches, evaluation_branch
from playhead.recipe.units import readable, whole_unit
from playhead.recipe.values import Recipe

Sources = dict[str, tuple[Leaf, Table]]
LONG_SEEK = 20_000
SHORT_SEEK = 1_000


def print_step(
    recipe: Recipe,
    plan: Plan,
    tables: dict[str, Table],
    split: str | None,
    asked: tuple[int, int | None, int],
    *,
    as_json: bool,
) -> None:
    number, rank, world = asked
    found = plan.step_at(_sought(recipe, plan, split, number))
    assert found is not None, "seek refuses a step past the end"
    step, _ = found
    lanes = range(plan.lanes) if rank is None else lanes_of_rank(rank, world, plan.lanes)
    batches = [batch for batch in step.micro_batches if batch.lane in lanes]
    sources = {leaf.source.name: (leaf, tables[leaf.path]) for leaf in _leaves(recipe, split)}
    if as_json:
        receipt = None if step.receipt is None else f"{step.receipt:016x}"
        plain = [_plain(batch, plan, sources) for batch in batches]
        print_json({"step": step.number, "receipt": receipt, "lanes": plain})
    else:
        _print_lanes(step, batches, plan, sources)


def _sought(recipe: Recipe, plan: Plan, split: str | None, number: int) -> Cursor:
    """The cursor of a step. Progress is shown on a terminal; before a long search, how to avoid it."""
    to_plan = steps_to_plan(recipe, plan, number)
    if to_plan > LONG_SEEK and split is None:
        typer.echo(
            f"planning {to_plan:,} steps; after `playhead prepare RECIPE --steps {number}` they are a look-up",
            err=True,
        )
    columns = (TextColumn("planning"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("steps", total=to_plan, visible=to_plan > SHORT_SEEK)
        return seek(recipe, plan, number, lambda planned: bars.update(task, completed=planned))


def _plain(batch: MicroBatch, plan: Plan, sources: Sources) -> dict[str, Any]:
    """A micro-batch as plain values; lengths in the whole numbers the plan works in."""
    picks = []
    for name, epoch, row, length in _named(batch, plan):
        _, table = sources[name]
        rows = table.where(row)
        where = {"place": rows.place(0), "files": rows.files_of(0)}
        picks.append({"source": name, "epoch": epoch, "row": row, "length": length, **where})
    stream = plan.streams[batch.stream]
    return {
        "lane": batch.lane,
        "stream": stream.name,
        "idle": batch.idle,
        "num_samples": batch.num_samples,
        "unit": whole_unit(sources[stream.source_names[0]][0].unit),
        "picks": picks,
    }


def _print_lanes(step: Step, batches: list[MicroBatch], plan: Plan, sources: Sources) -> None:
    screen = console()
    receipt = "" if step.receipt is None else f", receipt {step.receipt:016x}"
    screen.print(Text.assemble((f"step {step.number:,}", "bold"), receipt))
    table = grid(">lane", "<source", ">epoch", ">row", ">length", "<place")
    for batch in batches:
        lane = f"{batch.lane}{' (idle)' if batch.idle else ''}"
        for name, epoch, row, length in _named(batch, plan):
            leaf, found = sources[name]
            shown = "-" if length is None else readable(length, leaf.unit)
            table.add_row(lane, name, f"{epoch:,}", f"{row:,}", shown, found.place(row))
            lane = ""
    screen.print(table)


def _named(batch: MicroBatch, plan: Plan) -> list[tuple[str, int, int, int | None]]:
    """Each pick as source, epoch, row and length."""
    names = plan.streams[batch.stream].source_names
    picks = batch.picks
    lengths = [None] * len(picks) if batch.lengths is None else batch.lengths.tolist()
    columns = zip(picks.source.tolist(), picks.epoch.tolist(), picks.row.tolist(), lengths, strict=True)
    return [(names[source], epoch, row, length) for source, epoch, row, length in columns]


def _leaves(recipe: Recipe, split: str | None) -> list[Leaf]:
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    return [leaf for branch in chosen for leaf in branch.leaves()]
