"""Preparing on the terminal: progress while it runs, a table when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from playhead.cli.screen import console, grid, percent, print_json
from playhead.feed import open_plan
from playhead.feed.ledger import write_ahead
from playhead.prepare import PrepareReport, SourceReport
from playhead.prepare import Progress as ShardDone
from playhead.recipe.tree import leaves
from playhead.recipe.units import for_people, whole_unit
from playhead.recipe.values import Recipe, Unit


@contextmanager
def scanning() -> Iterator[Callable[[ShardDone], None]]:
    """A bar for each source under way, on a terminal; nothing in a pipe."""
    columns = (TextColumn("{task.description:.40}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, int] = {}

        def show(done: ShardDone) -> None:
            if done.source not in tasks:
                tasks[done.source] = bars.add_task(done.source, total=done.total_bytes)
            bars.update(tasks[done.source], completed=done.done_bytes)  # type: ignore[arg-type]

        yield show


class Ahead(NamedTuple):
    """How far the ledger reaches, and whether the stream ends there."""

    step: int
    receipt: str
    ended: bool


def writing_ahead(recipe: Recipe, steps: int) -> Ahead:
    """Fill the ledger up to a step, with a bar on a terminal."""
    plan = open_plan(recipe)
    columns = (TextColumn("planning ahead"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("steps", total=steps)
        reached = write_ahead(recipe, plan, steps, lambda step: bars.update(task, completed=step))
    return Ahead(reached.step, f"{reached.receipt:016x}", reached.step < steps)


def print_report(recipe: Recipe, report: PrepareReport, ahead: Ahead | None, *, as_json: bool) -> None:
    units = {leaf.path: leaf.unit for leaf in leaves(recipe)}
    if as_json:
        print_json(_plain(report, ahead, units))
        return
    screen = console()
    screen.print(_sources_grid(report))
    losses = [source for source in report.sources if source.losses]
    if losses:
        screen.print(_losses_grid(losses, units))
    for source in report.sources:
        if source.num_unknown_ids:
            screen.print(f"{source.name}: {source.num_unknown_ids:,} ids to drop are not in it")
    if ahead is not None:
        end = ", where the stream ends" if ahead.ended else ""
        screen.print(f"planned ahead to step {ahead.step:,}{end}, receipt {ahead.receipt}")
    if report.dry_run:
        screen.print("a dry run: nothing was written; rows are estimates")
    elif not report.changed:
        screen.print("nothing changed")


def _plain(report: PrepareReport, ahead: Ahead | None, units: dict[str, Unit]) -> dict[str, Any]:
    """The report as plain values; lengths in the whole numbers the plan works in, null where a dry run cannot know."""
    found = {"changed": report.changed, **msgspec.to_builtins(report)}
    for source in found["sources"]:
        source["unit"] = whole_unit(units[source["path"]])
        if report.dry_run:
            source.update(dict.fromkeys(("length_sum", "selected_rows", "selected_length")))
    if ahead is not None:
        found["ledger"] = {"steps": ahead.step, "receipt": ahead.receipt, "ended": ahead.ended}
    return found


def _sources_grid(report: PrepareReport) -> Grid:
    scanned = "to scan" if report.dry_run else "scanned"
    table = grid("<source", ">shards", f">{scanned}", ">data", ">rows", ">selected", ">index")
    for source in report.sources:
        table.add_row(
            source.name,
            f"{source.num_shards:,}",
            f"{source.scanned_shards:,} ({decimal(source.scanned_bytes)})",
            decimal(source.total_bytes),
            f"{source.num_rows:,}",
            "-" if report.dry_run else f"{source.selected_rows:,}",
            decimal(source.index_bytes),
        )
    return table


def _losses_grid(sources: list[SourceReport], units: dict[str, Unit]) -> Grid:
    table = grid("<left out of", "<by the rule", ">rows", ">of the rows", ">length", ">of the length")
    for source in sources:
        for loss in source.losses:
            rows = percent(loss.num_rows / source.num_rows) if source.num_rows else "-"
            share = percent(loss.length / source.length_sum) if source.length_sum else "-"
            length = for_people(loss.length, units[source.path]) if source.length_sum else "-"
            table.add_row(source.name, loss.rule, f"{loss.num_rows:,}", rows, length, share)
    return table
