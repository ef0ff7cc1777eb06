"""Terminal output shared by all commands."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_PIPE_WIDTH = 10_000
_HEADING_WIDTH = 100
_LABEL_WIDTH = 17


def console(*, stderr: bool = False) -> Console:
    """A console that neither wraps nor colours in a pipe. Text is printed literally: a name may look like markup."""
    plain: dict[str, Any] = {"stderr": stderr, "markup": False, "emoji": False, "highlight": False}
    found = Console(**plain)
    return found if found.is_terminal else Console(**plain, width=_PIPE_WIDTH)


def grid(*columns: str, gap: int = 2) -> Grid:
    """A table of columns as `<name` (to the left; folded where the terminal is narrow) or `>number` (never folded)."""
    found = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for column in columns:
        if column[0] == "<":
            found.add_column(column[1:], overflow="fold")
        else:
            found.add_column(column[1:], justify="right", no_wrap=True)
    return found


def heading(screen: Console, title: str) -> None:
    width = min(screen.width, _HEADING_WIDTH)
    screen.print(Text(f"── {title} ".ljust(width, "─"), "green"))


def labelled(screen: Console, label: str, text: str) -> None:
    """A label and its text, which stays in its column if it is too long for the terminal."""
    lines = textwrap.wrap(text, screen.width - _LABEL_WIDTH, break_on_hyphens=False)
    for line in lines:
        screen.print(label.ljust(_LABEL_WIDTH) + line)
        label = ""


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def bar(fraction: float, width: int) -> str:
    """A bar of blocks, in eighths of a character."""
    eighths = round(fraction * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
