"""`playhead curate`: diarised recordings to training windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="curate",
    help="Cut recordings into training windows.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _commands() -> None:
    """Keeps `windows` a word of its own while it is the only command."""


@app.command("windows")
def windows(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="Manifests, directories, patterns; and key=value parameters."),
    ],
    out: Annotated[Path, typer.Option(help="The directory to write.")],
    config: Annotated[Path | None, typer.Option(help="A YAML file of parameters.")] = None,
    target_window_duration: Annotated[float | None, typer.Option(help="Seconds a window should have.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="By which fraction it may have more or less.")] = None,
    min_bandwidth: Annotated[float | None, typer.Option(help="Hertz that every segment must reach.")] = None,
    min_sample_rate: Annotated[float | None, typer.Option(help="Hertz that a recording must have.")] = None,
    min_speakers: Annotated[int | None, typer.Option(help="The fewest speakers of a window.")] = None,
    max_speakers: Annotated[int | None, typer.Option(help="The most speakers of a window.")] = None,
    truncation: Annotated[
        bool | None, typer.Option("--truncation/--no-truncation", help="Cut the last segment of a window at a word.")
    ] = None,
    drop_fields: Annotated[str | None, typer.Option(help="Fields to drop from segments, with commas.")] = None,
    drop_fields_top_level: Annotated[str | None, typer.Option(help="Fields to drop from rows, with commas.")] = None,
    overlap_percentage: Annotated[float | None, typer.Option(help="From which overlap on one of two goes.")] = None,
    target_duration: Annotated[float | None, typer.Option(help="Seconds; of two windows the nearer stays.")] = None,
    rows_per_shard: Annotated[int, typer.Option(min=1, help="Rows of the input to a file of rows.")] = 2000,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one a core.")] = None,
    on_error: Annotated[str, typer.Option(help="What a bad row does: stop, or reject.")] = "stop",
    loss_details: Annotated[
        bool, typer.Option("--loss-details/--no-loss-details", help="Write lost_win_full_data, most of a row's bytes.")
    ] = True,
    repeat: Annotated[int, typer.Option(min=1, help="Read the input this many times over, to try the scale.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Write everything anew.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cut diarised recordings into windows of about one duration, and keep those that overlap little.

    An interrupted run goes on where it was. Does nothing where everything is done.
    """
    from playhead.cli.curate_view import curating, print_windows
    from playhead.curate.run import curate_windows
    from playhead.curate.settings import read_config, split_words

    if on_error not in ("stop", "reject"):
        raise typer.BadParameter("stop or reject", param_hint="--on-error")
    flags = {
        "target_window_duration": target_window_duration,
        "tolerance": tolerance,
        "min_bandwidth": min_bandwidth,
        "min_sample_rate": min_sample_rate,
        "min_speakers": min_speakers,
        "max_speakers": max_speakers,
        "truncation": truncation,
        "drop_fields": drop_fields,
        "drop_fields_top_level": drop_fields_top_level,
        "overlap_percentage": overlap_percentage,
        "target_duration": target_duration,
    }
    files, overrides = split_words(inputs)
    if not files:
        raise typer.BadParameter("no file to read among the arguments", param_hint="INPUT...")
    parameters = read_config(config, overrides, {name: value for name, value in flags.items() if value is not None})
    with curating() as progress:
        report = curate_windows(
            files,
            out,
            parameters,
            rows_per_shard=rows_per_shard,
            workers=workers,
            on_error=on_error,  # type: ignore[arg-type]
            loss_details=loss_details,
            repeat=repeat,
            force=force,
            progress=progress,
        )
    print_windows(report, as_json=as_json)
