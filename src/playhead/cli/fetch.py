"""`playhead fetch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.stopping import ending_cleanly


def fetch(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    to: Annotated[str, typer.Option(help="The directory of the copies, and of the recipe that uses them.")],
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Copy manifests and lists: .jsonl, .json, cuts, wids-meta.json.")
    ] = False,
    indexes: Annotated[bool, typer.Option("--indexes", help="Copy valid <file>.idx sidecars.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Files copied at a time.")] = 8,
    force: Annotated[bool, typer.Option("--force", help="Copy everything again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy the manifests and sidecars of a recipe to a local directory, and write the recipe that uses them.

    An interrupted run resumes where it stopped.
    """
    if not (manifests or indexes):
        raise typer.BadParameter("choose --manifests, --indexes or both.", param_hint="--manifests / --indexes")
    from playhead.cli.fetch_view import copying, print_report
    from playhead.prepare.fetch import fetch as fetch_recipe
    from playhead.recipe.values import Recipe

    loaded = Recipe.load(recipe)
    with ending_cleanly(as_json=as_json), copying() as progress:
        report = fetch_recipe(
            loaded,
            to,
            manifests=manifests,
            indexes=indexes,
            workers=workers,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )
    print_report(report, as_json=as_json)
