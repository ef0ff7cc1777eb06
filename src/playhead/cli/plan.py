"""`playhead plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.usage import check_rank_has_world


def plan(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    step: Annotated[int | None, typer.Option(min=0, help="List the picks of this step instead.")] = None,
    split: Annotated[str | None, typer.Option(help="Show this evaluation set, not the training stream.")] = None,
    world: Annotated[int | None, typer.Option(min=1, help="The number of ranks.  [default: 1]")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="With --step: only the lanes of this rank.")] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes that share the ranks: for bytes per node.  [default: the recipe's `parts`]"),
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="How many windows to plan and measure.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what will happen: how often each source is drawn, what a step holds, what padding and whole steps cost."""
    if rank is not None and step is None:
        raise typer.BadParameter("selects lanes of a step: needs --step.", param_hint="--rank")
    check_rank_has_world(rank, world)
    if nodes is not None and (step is not None or split is not None):
        raise typer.BadParameter(
            "is for the whole training stream: leave out --step and --split.", param_hint="--nodes"
        )
    given_world, world = world, world or 1

    from playhead.cli.plan_view import print_plan
    from playhead.cli.step_view import print_step
    from playhead.deal import check_world
    from playhead.inspect.node_bytes import node_bytes
    from playhead.recipe.values import Recipe
    from playhead.resolve import map_tables, plan_tables

    loaded = Recipe.load(recipe)
    tables = map_tables(loaded, split)
    opened = plan_tables(loaded, tables, split, world)
    check_world(rank or 0, world, opened.lanes, split)
    if step is None:
        read = None if split is not None else node_bytes(loaded, opened, tables, nodes, given_world)
        print_plan(loaded, opened, tables, split, windows, as_json=as_json, read=read)
    else:
        print_step(loaded, opened, tables, split, (step, rank, world), as_json=as_json)
