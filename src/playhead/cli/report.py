"""Errors on the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import typer

from playhead.errors import PlayheadError, PrepareError


def print_error(error: PlayheadError, *, as_json: bool) -> None:
    """The error on stderr: a message in red, or one JSON object."""
    if not as_json:
        typer.secho(f"{_kind(error)}: {error.message()}", fg=typer.colors.RED, err=True)
        return
    parts: dict[str, Any] = {name: getattr(error, name) for name in ("problem", "found", "expected", "fix")}
    if isinstance(error, PrepareError):
        parts["failures"] = [asdict(failure) for failure in error.failures]
    typer.echo(json.dumps({"error": {"type": _kind(error), **parts}}), err=True)


def _kind(error: PlayheadError) -> str:
    """The name of the kind of error in the tree of errors.py; a module may have more specific ones."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == PlayheadError.__module__)
