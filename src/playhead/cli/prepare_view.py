"""Preparing on the terminal: progress while it runs, a table when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from playhead.cli.screen import console, count, grid, percent, print_json
from playhead.feed.ledger import ledger_of, write_ahead
from playhead.prepare import Compiling, PrepareReport, SourceReport
from playhead.prepare import MeasureProgress as RowsMeasured
from playhead.prepare.report import Event
from playhead.recipe.tree import leaves
from playhead.recipe.units import readable, whole_unit
from playhead.recipe.values import Recipe, Unit
from playhead.resolve import open_plan

_NAMES_SHOWN = 3
_COMPILING = "getting ready (the first run compiles, up to half a minute)"


@contextmanager
def scanning() -> Iterator[Callable[[Event], None]]:
    """A bar for each active source, and one without a total while kernels are compiled; nothing in a pipe."""
    what, how_much = (
        TextColumn("{task.description:.60}", markup=False),
        TextColumn("{task.fields[amount]}", markup=False),
    )
    screen = console(stderr=True)
    columns = (what, BarColumn(), how_much, TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}
        waiting = bars.add_task(_COMPILING, total=None, amount="")

        def show(done: Event) -> None:
            bars.update(waiting, visible=isinstance(done, Compiling))
            if isinstance(done, Compiling):
                return
            if isinstance(done, RowsMeasured):
                title, so_far, total = f"{done.source}: {done.doing}", done.done_rows, done.total_rows
                amount = f"{so_far:,}/{total:,} rows"
            else:
                title, so_far, total = done.source, done.done_bytes, done.total_bytes
                amount = f"{decimal(so_far)} of {decimal(total)}"
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total, amount=amount)
            bars.update(tasks[title], completed=so_far, amount=amount)

        yield show


class Ahead(NamedTuple):
    """How far the ledger reaches, whether the stream ends there, and whether the ledger has grown."""

    step: int
    receipt: str
    ended: bool
    extended: bool


def writing_ahead(recipe: Recipe, steps: int) -> Ahead:
    """Fill the ledger up to a step, with a bar on a terminal."""
    plan = open_plan(recipe)
    ledger = ledger_of(recipe, plan)
    num_before = len(ledger.records())
    columns = (TextColumn("planning ahead"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("steps", total=steps)
        reached = write_ahead(recipe, plan, steps, lambda step: bars.update(task, completed=step))
    return Ahead(reached.step, f"{reached.receipt:016x}", reached.step < steps, len(ledger.records()) > num_before)


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
        if source.damaged:
            made_again = "is damaged ({}), and would be" if report.dry_run else "was damaged ({}), and was"
            screen.print(f"{source.name}: the index {made_again.format(', '.join(source.damaged))} made again")
        if source.num_unknown_ids:
            is_not = "is not" if source.num_unknown_ids == 1 else "are not"
            screen.print(f"{source.name}: {count(source.num_unknown_ids, 'id')} to drop {is_not} in it")
        for line in _left_out(source):
            screen.print(f"{source.name}: {line}")
        if source.verified_rows:
            screen.print(f"{source.name}: {count(source.verified_rows, 'row')} verified")
        if source.num_sidecars:
            screen.print(f"{source.name}: {count(source.num_sidecars, 'sidecar')} written")
    if ahead is not None:
        end = ", where the stream ends" if ahead.ended else ""
        screen.print(f"planned ahead to step {ahead.step:,}{end}, receipt {ahead.receipt}")
    if report.dry_run:
        screen.print("a dry run: nothing was written; rows are estimates")
    elif not _changed(report, ahead):
        screen.print("nothing changed")


def _left_out(source: SourceReport) -> Iterator[str]:
    """Notes about members of a source's files that belong to no row, and about files without rows."""
    if source.num_skipped and source.format == "webdataset":
        skipped = f"{count(source.num_skipped, 'member')} of its tars"
        belong = "belongs" if source.num_skipped == 1 else "belong"
        yield f"{skipped} {belong} to no sample (no stem or no extension in the name)"
    elif source.num_skipped:
        yield f"{count(source.num_skipped, 'row')} left out (`_skipme`, or without a member)"
    if source.empty_shards:
        names = source.empty_shards[:_NAMES_SHOWN]
        more = len(source.empty_shards) - len(names)
        have = "has" if len(source.empty_shards) == 1 else "have"
        shown = ", ".join(names) + (f" and {more:,} more" if more else "")
        yield f"{len(source.empty_shards):,} of {count(source.num_shards, 'shard')} {have} no rows: {shown}"


def _plain(report: PrepareReport, ahead: Ahead | None, units: dict[str, Unit]) -> dict[str, Any]:
    """The report as plain values; lengths in the whole numbers the plan works in, null if a dry run cannot know."""
    found = {"changed": _changed(report, ahead), **msgspec.to_builtins(report)}
    for source in found["sources"]:
        source["unit"] = whole_unit(units[source["path"]])
        if report.dry_run:
            source.update(dict.fromkeys(("length_sum", "selected_rows", "selected_length")))
    if ahead is not None:
        found["ledger"] = {
            "steps": ahead.step,
            "receipt": ahead.receipt,
            "ended": ahead.ended,
            "extended": ahead.extended,
        }
    return found


def _changed(report: PrepareReport, ahead: Ahead | None) -> bool:
    return report.changed or (ahead is not None and ahead.extended)


def _sources_grid(report: PrepareReport) -> Grid:
    """A line for each source; columns that are empty in this run are left out."""
    measured = any(source.measured_rows for source in report.sources)
    evaluated = any(source.evaluation for source in report.sources)
    names = [
        "<source",
        *(["<evaluation"] if evaluated else []),
        ">shards",
        ">to scan" if report.dry_run else ">scanned",
        ">data",
        ">rows",
    ]
    names += [">to measure" if report.dry_run else ">measured"] if measured else []
    names += [">index"] if report.dry_run else [">selected", ">index"]
    table = grid(*names)
    for source in report.sources:
        cells = [
            source.name,
            *([source.evaluation or ""] if evaluated else []),
            f"{source.num_shards:,}",
            f"{source.scanned_shards:,} ({decimal(source.scanned_bytes)})",
        ]
        cells += [decimal(source.total_bytes), f"{source.num_rows:,}"]
        cells += [f"{source.measured_rows:,}"] if measured else []
        cells += [] if report.dry_run else [f"{source.selected_rows:,}"]
        table.add_row(*cells, decimal(source.index_bytes))
    return table


def _losses_grid(sources: list[SourceReport], units: dict[str, Unit]) -> Grid:
    table = grid("<left out of", "<by the rule", ">rows", ">of the rows", ">length", ">of the length")
    for source in sources:
        for loss in source.losses:
            rows = percent(loss.num_rows / source.num_rows) if source.num_rows else "-"
            share = percent(loss.length / source.length_sum) if source.length_sum else "-"
            length = readable(loss.length, units[source.path]) if source.length_sum else "-"
            table.add_row(source.name, loss.rule, f"{loss.num_rows:,}", rows, length, share)
    return table
