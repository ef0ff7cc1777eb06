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
    """Make three small sources, prepare them, show the plan, and try the promise on it."""
    from playhead.cli.demo_data import make_data
    from playhead.cli.demo_story import tell

    tell(make_data(directory))
