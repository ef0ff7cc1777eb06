"""Verdicts on the terminal: progress while runs are made, a table when they are done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from playhead.cli.report import print_error
from playhead.cli.screen import console, labelled
from playhead.cli.stopping import Stopped, stoppable
from playhead.errors import PlayheadError
from playhead.store import replacing
from playhead.verify.figures import percentile
from playhead.verify.page import facts_of, page_of
from playhead.verify.plain import plain
from playhead.verify.verdict import TAGS, Verdict
from playhead.verify.verify import VerifyReport

_STYLES = {"passed": "green", "failed": "bold red", "unproven": "yellow", "not asked": "dim"}
_INDENT = 18


@contextmanager
def showing_runs() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each run, on a terminal; nothing in a pipe."""
    screen = console(stderr=True)
    columns = (
        TextColumn("{task.description:.40}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps of all ranks", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("opening", total=1)
        title = ""

        def show(run: str, done: int, total: int) -> None:
            nonlocal title
            if run != title:
                bars.reset(task, description=run)
                title = run
            bars.update(task, completed=min(done, total), total=total)

        yield show


@contextmanager
def stoppable_runs() -> Iterator[None]:
    """A signal ends every process that was started, with one message and the exit code of the signal."""
    try:
        with stoppable():
            yield
    except Stopped as stopped:
        error = PlayheadError(f"stopped by {stopped.name}; no process is left", fix="run it again from the start")
        print_error(error, as_json="--json" in sys.argv[1:])
        raise typer.Exit(stopped.exit_code) from None


def write_reports(report: VerifyReport, json_file: Path | None, html_file: Path | None) -> None:
    """The report beside its records, and where the user wants it."""
    text = json.dumps(plain(report), indent=2, allow_nan=False) + "\n"
    for path in filter(None, (report.settings.records / "report.json", json_file)):
        with replacing(path) as file:
            file.write(text.encode())
    if html_file is not None:
        with replacing(html_file) as file:
            file.write(page_of(report).encode())


def print_verdicts(report: VerifyReport) -> None:
    screen = console()
    for verdict in report.verdicts:
        _print_verdict(screen, verdict)
    screen.print()
    passed = sum(verdict.outcome == "passed" for verdict in report.verdicts)
    others = [verdict for verdict in report.verdicts if verdict.outcome != "passed"]
    rest = "; ".join(f"{verdict.question} {verdict.outcome}" for verdict in others)
    summary = f"{passed} of {len(report.verdicts)} passed" + (f"; {rest}" if rest else "")
    screen.print(summary, style="green" if report.is_proved else "bold red")
    figures = report.figures
    if figures.seconds_to_first is not None and figures.step_seconds:
        median, high = (1000 * percentile(figures.step_seconds, q) for q in (50, 95))
        text = (
            f"{figures.seconds_to_first:,.1f} s to the first batch; a step in {median:,.1f} ms, 95 % in {high:,.1f} ms"
        )
        labelled(screen, "speed", f"{text} ({report.settings.world_size} ranks, {report.settings.options} each)")
    labelled(screen, "took", f"{report.seconds:,.0f} s")
    labelled(screen, "records", str(report.settings.records))


def _print_verdict(screen: Console, verdict: Verdict) -> None:
    head = Text(f"{verdict.question:<4} ")
    head.append(f"{verdict.outcome:<11}", _STYLES[verdict.outcome])
    head.append(f"{verdict.title} ")
    head.append(f"({verdict.seconds:,.1f} s)", "dim")
    screen.print(head)
    for text in verdict.evidence:
        _indented(screen, text)
    if verdict.tag is not None:
        _indented(screen, f"{verdict.tag}: {TAGS[verdict.tag]}", "bold")
    if verdict.difference is not None:
        for label, text in facts_of(verdict.difference):
            _indented(screen, f"{label:<16} {text}")
        for cause in verdict.difference.causes:
            _indented(screen, f"{'usual cause':<16} {cause}", "dim")


def _indented(screen: Console, text: str, style: str | None = None) -> None:
    for line in text.splitlines():
        for part in Text(line, style or "").wrap(screen, screen.width - _INDENT):
            part.rstrip()
            screen.print(" " * (_INDENT - 2), part)
