"""`playhead prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.engine import EngineName, EngineOption, RayAddress, engine_of
from playhead.cli.stopping import ending_cleanly


def prepare(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers, or jobs at a time on a Ray cluster; by default one a core.")
    ] = None,
    memory: Annotated[int, typer.Option(min=8, help="Megabytes a worker may use.")] = 256,
    force: Annotated[bool, typer.Option("--force", help="Index everything again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")] = False,
    sidecars: Annotated[bool, typer.Option("--sidecars", help="Also write <file>.idx for lhotse and NeMo.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the map over all rows of sources with `length: {measure: true}`.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also check every row, and every byte of the indexes.")
    ] = False,
    steps: Annotated[int, typer.Option(min=0, help="Also plan this many steps ahead into the ledger.")] = 0,
    engine: EngineOption = EngineName.local,
    ray_address: RayAddress = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Index the sources of a recipe and select their rows. Does nothing if nothing changed.

    An interrupted run resumes where it stopped.
    """
    chosen = engine_of(engine, ray_address, workers)
    from playhead.cli.prepare_view import print_report, scanning, writing_ahead
    from playhead.prepare import prepare as prepare_recipe
    from playhead.recipe.values import Recipe

    loaded = Recipe.load(recipe)
    with ending_cleanly(as_json=as_json):
        with scanning() as progress:
            report = prepare_recipe(
                loaded,
                workers=workers if chosen is None else None,
                memory_mb=memory,
                force=force,
                dry_run=dry_run,
                sidecars=sidecars,
                progress=progress,
                measure=measure,
                verify=verify,
                engine=chosen,
            )
        reached = writing_ahead(loaded, steps) if steps and not dry_run else None
    print_report(loaded, report, reached, as_json=as_json)
