"""Preparing on the terminal: progress while it runs, a table when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from playhead.cli.screen import console, percent, print_json
from playhead.feed import open_plan
from playhead.feed.ledger import write_ahead
from playhead.plan.cursor import Cursor
from playhead.prepare import PrepareReport, SourceReport
from playhead.prepare import Progress as ShardDone
from playhead.recipe.values import Recipe


@contextmanager
def scanning() -> Iterator[Callable[[ShardDone], None]]:
    """A bar for each source under way, on a terminal; nothing in a pipe."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, int] = {}

        def show(done: ShardDone) -> None:
            if done.source not in tasks:
                tasks[done.source] = bars.add_task(done.source, total=done.total_bytes)
            bars.update(tasks[done.source], completed=done.done_bytes)  # type: ignore[arg-type]

        yield show


def writing_ahead(recipe: Recipe, steps: int) -> Cursor:
    """Fill the ledger up to a step, with a bar on a terminal."""
    plan = open_plan(recipe)
    columns = (TextColumn("planning ahead"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("steps", total=steps)
        return write_ahead(recipe, plan, steps, lambda step: bars.update(task, completed=step))


def print_report(report: PrepareReport, reached: Cursor | None, *, as_json: bool) -> None:
    if as_json:
        found = {"changed": report.changed, **msgspec.to_builtins(report)}
        if reached is not None:
            found["ledger"] = {"steps": reached.step, "receipt": f"{reached.receipt:016x}"}
        print_json(found)
        return
    screen = console()
    screen.print(_sources_grid(report))
    losses = [source for source in report.sources if source.losses]
    if losses:
        screen.print(_losses_grid(losses))
    for source in report.sources:
        if source.num_unknown_ids:
            screen.print(f"{source.name}: {source.num_unknown_ids:,} ids to drop are not in it")
    if reached is not None:
        screen.print(f"planned ahead to step {reached.step:,}, receipt {reached.receipt:016x}", highlight=False)
    if report.dry_run:
        screen.print("a dry run: nothing was written; rows are estimates")
    elif not report.changed:
        screen.print("nothing changed")


def _sources_grid(report: PrepareReport) -> Grid:
    grid = Grid("source", box=None, pad_edge=False, header_style="dim")
    for title in ("shards", "to scan" if report.dry_run else "scanned", "data", "rows", "selected", "index"):
        grid.add_column(title, justify="right")
    for source in report.sources:
        grid.add_row(
            source.name,
            f"{source.num_shards:,}",
            f"{source.scanned_shards:,} ({decimal(source.scanned_bytes)})",
            decimal(source.total_bytes),
            f"{source.num_rows:,}",
            f"{source.selected_rows:,}",
            decimal(source.index_bytes),
        )
    return grid


def _losses_grid(sources: list[SourceReport]) -> Grid:
    grid = Grid("left out of", "by the rule", box=None, pad_edge=False, header_style="dim")
    for title in ("rows", "of the rows", "length", "of the length"):
        grid.add_column(title, justify="right")
    for source in sources:
        for loss in source.losses:
            rows = percent(loss.num_rows / source.num_rows) if source.num_rows else "-"
            share = percent(loss.length / source.length_sum) if source.length_sum else "-"
            grid.add_row(source.name, loss.rule, f"{loss.num_rows:,}", rows, f"{loss.length:,}", share)
    return grid
