"""All checks of a recipe, one after another: none that fails stops the others."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playhead.errors import PlayheadError
from playhead.recipe.read import parse
from playhead.recipe.text import read_plain
from playhead.recipe.values import Recipe
from playhead.verify.checks.catalog import CHECKS
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import SEVERITIES, Finding, Problem, Severity, problem_of
from playhead.verify.checks.lines import line_of
from playhead.verify.checks.options import CheckOptions
from playhead.verify.checks.registry import NEEDS, Check

_LINE = re.compile(r", line (\d+)")

Progress = Callable[[Check, int], None]


@dataclass(frozen=True)
class CheckReport:
    """The findings, the worst first; those that were accepted; and the codes of checks not made, with the reason."""

    recipe: Path
    findings: tuple[Finding, ...]
    ignored: tuple[Finding, ...]
    checked: tuple[str, ...]
    not_checked: dict[str, str]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def failed(self, *, strict: bool = False) -> bool:
        """Whether something was found that should stop a job: an error or, if strict, a warning."""
        return bool(self.count("error") or (strict and self.count("warning")))


def check_recipe(
    path: str | os.PathLike[str], options: CheckOptions | None = None, progress: Progress | None = None
) -> CheckReport:
    """Check a recipe and what is prepared of it. Nothing is written, and little is read.

    `progress` is called with each check before it is made, and its number.
    """
    context = _context(Path(path).expanduser(), options or CheckOptions())
    text = _text(context.path)
    found: list[Finding] = []
    not_checked: dict[str, str] = {}
    only = context.options.only
    checks = [check for check in CHECKS if only is None or check.code in only]
    for number, check in enumerate(checks):
        if progress is not None:
            progress(check, number)
        reason = _reason_against(check, context)
        if reason is not None:
            not_checked[check.code] = reason
            continue
        found += [_finding(check, problem, context.path, text) for problem in _problems(check, context)]
    ignored = [each for each in found if any(rule.covers(each.code, each.place) for rule in context.options.ignored)]
    findings = sorted(
        (each for each in found if each not in ignored),
        key=lambda each: (SEVERITIES.index(each.severity), each.code, each.line or 0),
    )
    checked = tuple(check.code for check in checks if check.code not in not_checked)
    return CheckReport(context.path, tuple(findings), tuple(ignored), checked, not_checked)


def _text(path: Path) -> str:
    """The text of the recipe, for its lines; what is wrong with it is said when it is read as a recipe."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _context(path: Path, options: CheckOptions) -> Context:
    values: Any = {}
    try:
        values = read_plain(path)
        loaded: Recipe | PlayheadError = parse(values, path.absolute().parent)
    except PlayheadError as error:
        loaded = error
    return Context(path, values if isinstance(values, dict) else {}, loaded, options)


def _reason_against(check: Check, context: Context) -> str | None:
    """Why a check is not made; None where it can be."""
    return next((why for need, why in NEEDS.items() if need in check.needs and not context.has(need)), None)


def _problems(check: Check, context: Context) -> Iterator[Problem]:
    """What a check finds; that it fails itself is a problem, too."""
    try:
        yield from check.look(context)
    except PlayheadError as error:
        yield problem_of(error, "", "error")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one check must not stop the others
        frame = traceback.extract_tb(error.__traceback__)[-1]
        yield Problem(
            "",
            f"this check could not be made: {type(error).__name__}: {error}",
            found=f"in {frame.filename}, line {frame.lineno}",
            fix="if it was not your own function that failed, report it as a bug of Playhead",
            severity="warning",
        )


def _finding(check: Check, problem: Problem, path: Path, text: str) -> Finding:
    return Finding(
        check.code,
        problem.severity or check.severity,
        problem.place,
        _line(problem, path, text),
        problem.problem,
        problem.found,
        problem.expected,
        problem.fix,
    )


def _line(problem: Problem, path: Path, text: str) -> int | None:
    """The line that a place is on, or that the problem itself names."""
    named = _LINE.search(problem.problem) if str(path) in problem.problem else None
    return int(named[1]) if named is not None else line_of(text, problem.place)
