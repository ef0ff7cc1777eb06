"""`playhead demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    directory: Annotated[Path, typer.Argument(help="Where to put the data, the recipe and the indexes.")] = Path(
        "playhead-demo"
    ),
) -> None:
    """Make four small sources, prepare and plan them; kill two ranks, resume on four, and compare every batch.

    Exits with 1 if anything differs from an uninterrupted run.
    """
    from playhead.cli.demo_data import make_data
    from playhead.cli.demo_story import run_demo

    if not run_demo(make_data(directory)):
        raise typer.Exit(1)
