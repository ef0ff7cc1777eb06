"""`playhead simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file. It need not be prepared.")],
    ranks: Annotated[int, typer.Option(min=1, help="The number of ranks.")] = 16_384,
    rows: Annotated[float, typer.Option(min=1, max=1e15, help="The rows of all sources together.")] = 1e12,
    windows: Annotated[int, typer.Option(min=1, help="How many windows of each sub-stream to plan.")] = 4,
    per_node: Annotated[int, typer.Option(min=1, help="Ranks on a node, for the memory of a node.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan the recipe as if it had this many rows and ranks, without data; check the laws of the stream, and its cost.

    Exits with 1 if a law does not hold.
    """
    from dataclasses import asdict

    from playhead.cli.screen import print_json
    from playhead.cli.simulate_view import print_simulation
    from playhead.inspect.simulation import Simulation
    from playhead.inspect.simulation import simulate as run
    from playhead.recipe.values import Recipe

    found = run(Recipe.load(recipe), Simulation(ranks, int(rows), windows, per_node))
    if as_json:
        print_json({**asdict(found), "passed": found.passed})
    else:
        print_simulation(found, per_node)
    if not found.passed:
        raise typer.Exit(1)
