"""`playhead bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from playhead.cli.usage import check_can_write, check_rank_has_world


def bench(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file. It must be prepared.")],
    steps: Annotated[int | None, typer.Option(min=2, help="Run for this many steps.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Run for so long.  [default: 10; 3 for each run of --sweep]")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, max=1024, help="Workers that make batches; 0: this process does.")] = 2,
    lookahead: Annotated[int, typer.Option(min=1, max=1024, help="Batches that each worker prepares ahead.")] = 2,
    threads: Annotated[
        int | None,
        typer.Option(min=0, max=1024, help="Threads of each worker that fetch ahead.  [default: the loader's]"),
    ] = None,
    decode_threads: Annotated[
        int, typer.Option(min=0, max=1024, help="Threads of each worker that help to decode audio and images.")
    ] = 0,
    worker_kind: Annotated[Literal["process", "thread"], typer.Option(help="What workers are.")] = "process",
    step_seconds: Annotated[
        float, typer.Option(min=0, max=86_400, help="Simulate a trainer that takes so long for a step.")
    ] = 0.0,
    rank: Annotated[int | None, typer.Option(min=0, help="The rank to run as.  [default: 0]")] = None,
    world: Annotated[int | None, typer.Option(min=1, help="The number of ranks.  [default: 1]")] = None,
    split: Annotated[str | None, typer.Option(help="Run this evaluation set, not the training stream.")] = None,
    mock: Annotated[
        bool, typer.Option("--mock", help="Read nothing: zeros of the planned lengths, to see the ceiling.")
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Try several numbers of workers, look-ahead and threads; recommend some.")
    ] = False,
    storage: Annotated[
        bool, typer.Option("--storage", help="Measure the storage by itself first, with 1 to 8 readers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a report with a timeline to this file.")] = None,
) -> None:
    """Run the real pipeline for a while and say in one line what limits it, and what to change.

    Ctrl-C ends it early; what was measured until then is printed.
    """
    check_rank_has_world(rank, world)
    if storage and mock:
        raise typer.BadParameter("reads no storage: leave out --storage.", param_hint="--mock")
    if html is not None:
        check_can_write(html, "--html")

    from playhead.cli.bench_view import exit_code, print_bench, run_bench, write_page
    from playhead.inspect.bench.recording import BenchLimits
    from playhead.inspect.bench.report import BenchJob
    from playhead.inspect.bench.values import LoaderSettings
    from playhead.recipe.values import Recipe

    default = None if steps is not None else 3.0 if sweep else 10.0
    limits = BenchLimits(steps, default if seconds is None else seconds, step_seconds)
    rank, world = (0, 1) if world is None else (rank or 0, world)
    job = BenchJob(Recipe.load(recipe), limits, split, rank, world, mock=mock)
    settings = LoaderSettings(workers, lookahead, threads, worker_kind, decode_threads)
    done = run_bench(job, settings, with_sweep=sweep, with_storage=storage)
    failed = None if html is None else write_page(done, recipe.name, html)  # first: a pipe to print to may be closed
    print_bench(done, as_json=as_json)
    if failed is not None:
        raise failed
    raise typer.Exit(exit_code(done))
