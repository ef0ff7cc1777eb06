"""`playhead fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.stopping import ending_cleanly
from playhead.cli.usage import check_rank_has_world


def fetch(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    to: Annotated[str, typer.Option(help="The directory of the copies, and of the recipe that uses them.")],
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Copy what this many steps need: shards, media, lists, prepared indexes."),
    ] = None,
    from_step: Annotated[int | None, typer.Option(min=0, help="With --steps: the first step.  [default: 0]")] = None,
    state: Annotated[
        Path | None, typer.Option(help="With --steps: begin where the loader's state in this file stands.")
    ] = None,
    world: Annotated[int | None, typer.Option(min=1, help="With --steps: the number of ranks.")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="With --steps: only what this rank needs.")] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="With --node: the number of nodes that share the ranks of --world.")
    ] = None,
    node: Annotated[
        int | None, typer.Option(min=0, help="With --steps: only what the ranks of this node need.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="With --steps: also copy this evaluation set. May be given repeatedly.")
    ] = None,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Copy manifests and lists: .jsonl, .json, cuts, wids-meta.json.")
    ] = False,
    indexes: Annotated[bool, typer.Option("--indexes", help="Copy valid <file>.idx sidecars.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Files copied at a time.")] = 8,
    force: Annotated[bool, typer.Option("--force", help="Copy everything again.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read copies that are present; copy those with other bytes again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy files of a recipe to a local directory, and write the recipe that uses them.

    With --steps, the recipe that is written runs these steps without the storage of the data. Without --steps,
    --manifests and --indexes everything is copied, evaluation sets too, and it runs any step. An interrupted run
    resumes where it stopped, inside a large file too.
    """
    chosen = {"from-step": from_step, "state": state, "world": world, "rank": rank, "node": node, "split": split}
    for name, value in chosen.items():
        if value is not None and steps is None:
            raise typer.BadParameter("needs --steps, the number of steps to fetch.", param_hint=f"--{name}")
    if from_step is not None and state is not None:
        raise typer.BadParameter("a state says where to begin: leave out --from-step.", param_hint="--state")
    if rank is not None and node is not None:
        raise typer.BadParameter("choose a rank or a node.", param_hint="--rank / --node")
    if (node is None) != (nodes is None) or (node is not None and world is None):
        raise typer.BadParameter("a node needs --nodes, --node and --world.", param_hint="--node")
    check_rank_has_world(rank, world)
    from playhead.cli.fetch_view import copying, print_report
    from playhead.cli.state_file import read_state_file
    from playhead.prepare.fetch import fetch as fetch_recipe
    from playhead.prepare.fetch_recipe import RECIPE
    from playhead.prepare.fetch_steps import StepsWanted, ranks_of_node
    from playhead.recipe.values import Recipe

    loaded = Recipe.load(recipe)
    written = Path(to, RECIPE).expanduser()
    if written.exists() and written.samefile(recipe):
        raise typer.BadParameter("would replace the recipe itself: name another directory.", param_hint="--to")
    wanted = None
    if steps is not None:
        ranks: tuple[int, ...] | None = None if rank is None else (rank,)
        if node is not None and nodes is not None:
            ranks = ranks_of_node(node, nodes, world or 1)
        saved = None if state is None else read_state_file(state)
        wanted = StepsWanted(steps, from_step or 0, saved, ranks, world or 1, tuple(split or ()))
    with ending_cleanly(as_json=as_json), copying() as progress:
        report = fetch_recipe(
            loaded,
            to,
            steps=wanted,
            manifests=manifests,
            indexes=indexes,
            workers=workers,
            force=force,
            verify=verify,
            dry_run=dry_run,
            progress=progress,
        )
    print_report(report, as_json=as_json)
