"""`playhead check`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from playhead.verify.checks.options import Ignored


def check(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    world: Annotated[str | None, typer.Option(help="Numbers of ranks that are planned, such as 8,64,512.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="The steps that are planned.")] = None,
    state: Annotated[Path | None, typer.Option(help="A saved state: say what changed since.")] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Accept findings of a code (PH032), or at one place (PH032:sources[1].weight). Repeatable."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Make only these checks, as in PH052,PH053.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings, too, give exit code 1.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    github: Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions.")] = False,
) -> None:
    """Check a recipe before a job is queued: indexes, rows, weights, batches, maps, the machine, a saved state.

    Nothing is written, and a few rows of each source are read. The exit code is 1 where an error is found.
    """
    if as_json and github:
        raise typer.BadParameter("is one output, and --json another.", param_hint="--github")
    worlds = _worlds(world)

    from playhead.cli.check_view import checking, print_annotations, print_findings, print_findings_json
    from playhead.verify.checks import CheckOptions, check_recipe

    options = CheckOptions(worlds, steps, state, tuple(map(_ignored, ignore or [])), _only(only))
    # What maps print is no part of the output.
    with checking() as progress, redirect_stdout(sys.stderr):
        report = check_recipe(recipe, options, progress)
    if as_json:
        print_findings_json(report)
    elif github:
        print_annotations(report)
    else:
        print_findings(report)
    raise typer.Exit(int(report.failed(strict=strict)))


def _worlds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise typer.BadParameter(f"{text}: is a list of numbers of ranks, such as 8,64,512.", param_hint="--world")
    return tuple(dict.fromkeys(map(int, numbers)))


def _ignored(text: str) -> Ignored:
    from playhead.verify.checks.options import Ignored

    code, _, place = text.partition(":")
    return Ignored(_known(code, "--ignore"), place or None)


def _only(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(_known(code.strip(), "--only") for code in text.split(","))


def _known(code: str, option: str) -> str:
    from playhead.verify.checks import CHECKS

    if code not in {check.code for check in CHECKS}:
        raise typer.BadParameter(f"{code}: there is no such check.", param_hint=option)
    return code
