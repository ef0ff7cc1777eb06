"""`playhead verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def verify(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file. It must be prepared.")],
    world: Annotated[int | None, typer.Option(min=1, help="The number of ranks.  [default: 2, or what fits]")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Workers of each rank.")] = 2,
    threads: Annotated[bool, typer.Option("--threads", help="Workers are threads, not processes.")] = False,
    steps: Annotated[int | None, typer.Option(min=2, help="The steps of a run.  [default: up to 48]")] = None,
    save_at: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Save after so many steps; may be repeated.  [default: a quarter and half]"),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Ask only these questions, as in Q4,Q6.")] = None,
    payload: Annotated[
        bool, typer.Option("--payload/--no-payload", help="Compare contents, too; without, nothing is read.")
    ] = True,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Of a pass deliver so many samples, rounded up to whole windows.")
    ] = None,
    kills: Annotated[int, typer.Option(min=1, help="How often ranks are killed in Q7.")] = 3,
    loader: Annotated[
        str | None, typer.Option(help="Verify the loader that this function makes, as in train:make_loader.")
    ] = None,
    id_field: Annotated[str, typer.Option("--id", help="The field of a batch that holds the ids of samples.")] = "id",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file as JSON.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write the report to this file as HTML.")] = None,
    records: Annotated[
        Path | None, typer.Option(help="Keep the records here.  [default: verify/ in the recipe's cache]")
    ] = None,
    launcher: Annotated[
        Literal["auto", "torchrun", "own"], typer.Option(help="What starts the ranks; auto is torchrun where torch is.")
    ] = "auto",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds without a batch after which a run is given up.")] = 120,
    seed: Annotated[int, typer.Option(help="Decides the moments of kills.")] = 0,
) -> None:
    """Prove on this recipe, with real processes, what the stream promises: twelve questions, each with its evidence.

    Exits with 1 if a promise is broken or could not be proved.
    """
    from playhead.cli.verify_view import print_verdicts, showing_runs, stoppable_runs, write_reports
    from playhead.recipe.values import Recipe
    from playhead.verify.folder import records_in
    from playhead.verify.job import LoaderOptions
    from playhead.verify.launch import LaunchOptions
    from playhead.verify.loaders import VARIED, accepted, users_function
    from playhead.verify.runs import torch_is_installed
    from playhead.verify.settings import VerifySettings, default_steps, default_world
    from playhead.verify.verify import verify as run_verify

    questions = _questions(only)
    loaded = Recipe.load(recipe)
    lanes = loaded.lanes or 1
    num_steps = steps or default_steps(lanes)
    late = [str(at) for at in save_at or () if at >= num_steps]
    if late:
        raise typer.BadParameter(
            f"{', '.join(late)} is not before the last of {num_steps} steps.", param_hint="--save-at"
        )
    if launcher == "torchrun" and not torch_is_installed():
        raise typer.BadParameter("torch is not installed.", param_hint="--launcher")
    varied = VARIED if loader is None else accepted(users_function(loader, recipe), VARIED)
    settings = VerifySettings(
        recipe_path=recipe,
        records=records or Path(loaded.cache_dir) / "verify" / recipe.stem,
        world_size=world or default_world(lanes),
        options=LoaderOptions(workers, "thread" if threads else "process"),
        steps=num_steps,
        save_at=tuple(save_at or ()),
        questions=questions,
        payload=payload,
        sample=sample,
        kills=kills,
        loader=loader,
        varied=varied,
        id_field=id_field,
        launch=LaunchOptions(_launcher(launcher, payload=payload), timeout),
        seed=seed,
    )
    with stoppable_runs(), records_in(settings.records), showing_runs() as progress:
        report = run_verify(settings, progress)
        write_reports(report, json_file, html_file)
    print_verdicts(report)
    if not report.is_proved:
        raise typer.Exit(1)


def _launcher(wanted: str, *, payload: bool) -> Literal["torchrun", "own"]:
    """Who starts the ranks: torchrun where it is there, unless it should go fast."""
    from playhead.verify.runs import torch_is_installed

    return "torchrun" if wanted == "torchrun" or (wanted == "auto" and payload and torch_is_installed()) else "own"


def _questions(only: str | None) -> tuple[str, ...]:
    from playhead.verify.verdict import QUESTIONS

    if only is None:
        return tuple(QUESTIONS)
    wanted = [name.strip().upper() for name in only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in QUESTIONS]
    if unknown or not wanted:
        raise typer.BadParameter(f"{', '.join(unknown) or 'nothing'}: one of Q1 to Q12.", param_hint="--only")
    return tuple(name for name in QUESTIONS if name in wanted)
