"""Fetching on the terminal: a bar while it runs, a table when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from playhead.cli.screen import console, count, grid, print_json
from playhead.prepare.fetch import FetchReport
from playhead.prepare.fetch_jobs import FetchedFile, FetchProgress

_NAMES_SHOWN = 3
_PROBLEMS_SHOWN = 8
_KINDS = {
    "shard": "files of shards",
    "media": "media",
    "manifest": "manifests",
    "index": "sidecars",
    "prepared": "prepared indexes",
}


@contextmanager
def copying() -> Iterator[Callable[[FetchProgress], None]]:
    """A bar of the files; nothing in a pipe."""
    screen = console(stderr=True)
    amount = TextColumn("{task.fields[amount]}", markup=False)
    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("files", total=None, amount="")

        def show(done: FetchProgress) -> None:
            amount = decimal(done.done_bytes)
            bars.update(task, completed=done.done_files, total=done.total_files, amount=amount)

        yield show


def print_report(report: FetchReport, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    screen = console()
    table = grid("<", ">files", ">to copy" if report.dry_run else ">copied", ">size", ">present")
    for kind, noun in _KINDS.items():
        files = [file for file in report.files if file.kind == kind]
        chosen = [file for file in files if file.outcome in ("copied", "to copy")]
        present = sum(file.outcome == "present" for file in files)
        if files:
            size = decimal(sum(file.num_bytes for file in chosen))
            table.add_row(noun, f"{len(files):,}", f"{len(chosen):,}", size, f"{present:,}")
    if report.steps is not None:
        screen.print(report.steps)
    screen.print(table)
    invalid = [file for file in report.files if file.outcome == "invalid"]
    missing = [file for file in report.files if file.outcome == "missing" and file.kind == "index"]
    absent = [file for file in report.files if file.outcome == "missing" and file.kind == "media"]
    if invalid:
        screen.print(f"{count(len(invalid), 'sidecar')} not copied, because invalid: {_named(invalid)}")
    if missing:
        about = f"{count(len(missing), 'file')} without a sidecar: {_named(missing)}"
        screen.print(f"{about}; `playhead prepare --sidecars` writes them")
    if absent:
        screen.print(f"{count(len(absent), 'file')} of media named in rows, not found: {_named(absent)}")
    for problem in report.problems[:_PROBLEMS_SHOWN]:
        screen.print(f"not copied: {problem}")
    if len(report.problems) > _PROBLEMS_SHOWN:
        screen.print(f"and {len(report.problems) - _PROBLEMS_SHOWN:,} more such rows; --json names all")
    for note in report.notes:
        screen.print(note)
    screen.print("a dry run: nothing was written" if report.dry_run else f"the recipe that uses them: {report.recipe}")


def _named(files: list[FetchedFile]) -> str:
    names = [file.path for file in files[:_NAMES_SHOWN]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")
