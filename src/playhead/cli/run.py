"""`playhead run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.usage import check_rank_has_world


def run(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.")],
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many steps.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Resume from this file if it exists; save there on exit, also on Ctrl-C.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(min=1, help="With --state: also save every N steps.  [default: 100]")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="This rank; detected if left out.")] = None,
    world: Annotated[int | None, typer.Option(min=1, help="The number of ranks; detected if left out.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Workers that make batches; 0: this process does.")] = 0,
    threads: Annotated[bool, typer.Option("--threads", help="Workers are threads, not processes.")] = False,
    split: Annotated[str | None, typer.Option(help="Run this evaluation set, not the training stream.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Deliver batches as to a training loop and discard them: shows the rate, and that every sample can be read.

    An endless stream runs until --steps or Ctrl-C.
    """
    check_rank_has_world(rank, world)
    if world is not None and rank is None:
        raise typer.BadParameter("needs --rank, the rank of this process.", param_hint="--world")
    if save_every is not None and state is None:
        raise typer.BadParameter("needs --state, the file to save to.", param_hint="--save-every")
    if threads and not workers:
        raise typer.BadParameter("needs --workers, the number of threads.", param_hint="--threads")

    from playhead.cli.run_loop import Limits, deliver
    from playhead.cli.run_view import print_summary
    from playhead.feed.loader import Loader, WorkerKind
    from playhead.recipe.values import Recipe

    loaded = Recipe.load(recipe)
    kind: WorkerKind = "thread" if threads else "process"
    with Loader(loaded, split=split, rank=rank, world_size=world, workers=workers, worker_kind=kind) as loader:
        done = deliver(loader, loaded, split, Limits(steps, state, save_every or 100))
    print_summary(done, as_json=as_json)
    raise typer.Exit(done.exit_code)
