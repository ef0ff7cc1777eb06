"""Findings on the terminal, as JSON, and as annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from playhead.cli.screen import console, count, print_json
from playhead.verify.checks import CHECKS, CheckReport, Finding, Severity
from playhead.verify.checks.registry import Check

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}
_CODE, _SEVERITY = 7, 9  # widths of columns
_INDENT = _CODE + _SEVERITY + 6
_NARROWEST = 20
_MOST_ALIKE = 8
_ANNOTATIONS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}


@contextmanager
def checking() -> Iterator[Callable[[Check, int], None]]:
    """A bar while checks are made; nothing in a pipe."""
    screen = console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.description:.60}", markup=False))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("checking", total=len(CHECKS))

        def show(check: Check, number: int) -> None:
            bars.update(task, completed=number, description=f"{check.code} {check.title}")

        yield show


def print_findings(report: CheckReport) -> None:
    """A table, with what was found, what was expected and what to do below each finding."""
    screen = console()
    if report.findings:
        screen.print(Text(f"{'code':<{_CODE}}{'severity':<{_SEVERITY}}{'line':>4}  finding", "dim"))
    for (code, severity), alike in groupby(report.findings, key=lambda finding: (finding.code, finding.severity)):
        found = list(alike)
        for finding in found[:_MOST_ALIKE]:
            _print_finding(screen, finding)
        if len(found) > _MOST_ALIKE:
            more = f"and {count(len(found) - _MOST_ALIKE, 'more finding')} like these; --json lists all"
            screen.print(
                Text.assemble(f"{code:<{_CODE}}", (f"{severity:<{_SEVERITY}}", _COLOURS[severity]), f"      {more}")
            )
    _print_summary(screen, report)


def _print_finding(screen: Console, finding: Finding) -> None:
    head = Text(f"{finding.code:<{_CODE}}")
    head.append(f"{finding.severity:<{_SEVERITY}}", _COLOURS[finding.severity])
    head.append(f"{finding.line or '':>4}  ")
    _print_wrapped(screen, head, Text(finding.problem, "bold"))
    details = (("at", finding.place), ("found", finding.found), ("expected", finding.expected), ("to fix", finding.fix))
    for label, part in details:
        if part:
            _print_wrapped(screen, Text.assemble((f"{'':<{_INDENT}}{label:<10}", "dim")), Text(part))


def _print_wrapped(screen: Console, head: Text, body: Text) -> None:
    """A text beside its head; lines that a terminal has no room for go on below the text, not below the head."""
    room = max(_NARROWEST, screen.width - len(head))
    for line in body.wrap(screen, room) or [body]:
        screen.print(head + line, soft_wrap=True)
        head = Text(" " * len(head))


def _print_summary(screen: Console, report: CheckReport) -> None:
    counts = [count(report.count(severity), severity) for severity in _COLOURS]
    ignored = f"; {count(len(report.ignored), 'finding')} accepted" if report.ignored else ""
    screen.print(f"{', '.join(counts)} from {count(len(report.checked), 'check')}{ignored}")
    reasons: dict[str, list[str]] = {}
    for code, reason in report.not_checked.items():
        reasons.setdefault(reason, []).append(code)
    for reason, codes in reasons.items():
        screen.print(f"not checked: {', '.join(codes)} ({reason})", soft_wrap=True)


def print_findings_json(report: CheckReport) -> None:
    print_json(
        {
            "recipe": str(report.recipe),
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "notes": report.count("note"),
            "findings": [asdict(finding) for finding in report.findings],
            "ignored": [asdict(finding) for finding in report.ignored],
            "checked": report.checked,
            "not_checked": report.not_checked,
        }
    )


def print_annotations(report: CheckReport) -> None:
    """A line for each finding, as GitHub Actions reads them from the output of a step."""
    for finding in report.findings:
        place = [f"file={_property(str(report.recipe))}"]
        place += [] if finding.line is None else [f"line={finding.line}"]
        place.append(f"title={_property(f'{finding.code} {finding.place}'.strip())}")
        parts = (("found: ", finding.found), ("expected: ", finding.expected), ("to fix: ", finding.fix))
        message = "\n".join([finding.problem, *(f"{label}{part}" for label, part in parts if part is not None)])
        typer.echo(f"::{_ANNOTATIONS[finding.severity]} {','.join(place)}::{_escaped(message)}")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
