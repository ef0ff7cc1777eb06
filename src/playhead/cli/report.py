"""Errors on the terminal."""

from __future__ import annotations

import json

import typer

from playhead.errors import PlayheadError


def print_error(error: PlayheadError, *, as_json: bool) -> None:
    """The error on stderr: a letter in red, or one JSON object."""
    if not as_json:
        typer.secho(f"{type(error).__name__}: {error.letter()}", fg=typer.colors.RED, err=True)
        return
    parts = {name: getattr(error, name) for name in ("problem", "found", "expected", "fix")}
    typer.echo(json.dumps({"error": {"type": type(error).__name__, **parts}}), err=True)
