"""What commands share on the terminal."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def console(*, stderr: bool = False) -> Console:
    """A console that neither wraps nor colours in a pipe."""
    found = Console(stderr=stderr)
    if not found.is_terminal:
        found = Console(stderr=stderr, width=200)
    return found


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


def bar(fraction: float, width: int) -> str:
    """A bar of blocks, in eighths of a character."""
    eighths = round(fraction * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
