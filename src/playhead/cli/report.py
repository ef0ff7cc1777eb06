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
        typer.secho(f"{type(error).__name__}: {error.message()}", fg=typer.colors.RED, err=True)
        return
    parts: dict[str, Any] = {name: getattr(error, name) for name in ("problem", "found", "expected", "fix")}
    if isinstance(error, PrepareError):
        parts["failures"] = [asdict(failure) for failure in error.failures]
    typer.echo(json.dumps({"error": {"type": type(error).__name__, **parts}}), err=True)
