"""`playhead curate`: recordings to training windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playhead.cli.curate_options import (
    AsJson,
    Audio,
    AudioRoot,
    BadRow,
    Config,
    Force,
    Inputs,
    OnError,
    Out,
    Repeat,
    RowsPerShard,
    Shards,
    WindowsPerShard,
    WorkDirectory,
    Workers,
)
from playhead.cli.engine import EngineName, EngineOption, RayAddress, engine_of
from playhead.cli.stopping import ending_cleanly

if TYPE_CHECKING:
    from playhead.curate.config import CutConfig, WindowConfig

app = typer.Typer(
    name="curate",
    help="Cut recordings into training windows.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("windows")
def windows(
    inputs: Inputs,
    out: Out,
    config: Config = None,
    target_window_duration: Annotated[float | None, typer.Option(help="Target duration of a window.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Allowed deviation from it, as a fraction.")] = None,
    min_bandwidth: Annotated[float | None, typer.Option(help="Minimum bandwidth of every segment, in hertz.")] = None,
    min_sample_rate: Annotated[float | None, typer.Option(help="Minimum sample rate of a recording, in hertz.")] = None,
    min_speakers: Annotated[int | None, typer.Option(help="The fewest speakers of a window.")] = None,
    max_speakers: Annotated[int | None, typer.Option(help="The most speakers of a window.")] = None,
    truncation: Annotated[
        bool | None, typer.Option("--truncation/--no-truncation", help="Cut the last segment of a window at a word.")
    ] = None,
    drop_fields: Annotated[str | None, typer.Option(help="Fields to drop from segments, with commas.")] = None,
    drop_fields_top_level: Annotated[str | None, typer.Option(help="Fields to drop from rows, with commas.")] = None,
    overlap_percentage: Annotated[float | None, typer.Option(help="Overlap at which one of two is dropped.")] = None,
    target_duration: Annotated[float | None, typer.Option(help="Seconds; the window nearer to it is kept.")] = None,
    loss_details: Annotated[
        bool, typer.Option("--loss-details/--no-loss-details", help="Write lost_win_full_data, most of a row's bytes.")
    ] = True,
    rows_per_shard: RowsPerShard = 2000,
    workers: Workers = None,
    on_error: OnError = BadRow.stop,
    repeat: Repeat = 1,
    force: Force = False,
    engine: EngineOption = EngineName.local,
    ray_address: RayAddress = None,
    shards: Shards = None,
    windows_per_shard: WindowsPerShard = 1000,
    audio_root: AudioRoot = None,
    work: WorkDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Cut diarised recordings into windows of about one duration, and keep those that overlap little.

    An interrupted run resumes where it stopped. Does nothing if everything is done.
    """
    from playhead.curate.config import WindowConfig

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
    files, parameters = _parameters(WindowConfig, inputs, config, flags)
    run = {"rows_per_shard": rows_per_shard, "repeat": repeat, "force": force, "work": work}
    run["loss_details"] = loss_details
    _curate(
        (files, out, parameters),
        {**run, **_work(engine, ray_address, workers), **_audio(shards, windows_per_shard, audio_root, on_error)},
        on_error,
        as_json=as_json,
    )


@app.command("cut")
def cut(
    inputs: Inputs,
    out: Out,
    config: Config = None,
    by: Annotated[str | None, typer.Option(help="Where to cut: silence, or hop.")] = None,
    min_seconds: Annotated[float | None, typer.Option(help="The shortest window.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="The longest window.")] = None,
    min_silence: Annotated[float | None, typer.Option(help="Seconds below which a pause is not a silence.")] = None,
    hop_seconds: Annotated[float | None, typer.Option(help="Seconds from window to window, by hop.")] = None,
    rows_per_shard: RowsPerShard = 2000,
    workers: Workers = None,
    on_error: OnError = BadRow.stop,
    repeat: Repeat = 1,
    force: Force = False,
    engine: EngineOption = EngineName.local,
    ray_address: RayAddress = None,
    shards: Shards = None,
    windows_per_shard: WindowsPerShard = 1000,
    audio_root: AudioRoot = None,
    work: WorkDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Cut long recordings without speakers into windows, at silences or by a fixed hop.

    An interrupted run resumes where it stopped. Does nothing if everything is done.
    """
    from playhead.curate.config import CutConfig

    flags = {
        "by": by,
        "min_seconds": min_seconds,
        "max_seconds": max_seconds,
        "min_silence": min_silence,
        "hop_seconds": hop_seconds,
    }
    files, parameters = _parameters(CutConfig, inputs, config, flags)
    run = {"rows_per_shard": rows_per_shard, "repeat": repeat, "force": force, "work": work}
    _curate(
        (files, out, parameters),
        {**run, **_work(engine, ray_address, workers), **_audio(shards, windows_per_shard, audio_root, on_error)},
        on_error,
        as_json=as_json,
    )


def _parameters(kind: Any, inputs: list[str], file: Path | None, flags: dict[str, Any]) -> tuple[list[str], Any]:
    """The files among the arguments, and the checked parameters from all sources."""
    from playhead.curate.settings import read_config, split_words

    files, overrides = split_words(inputs)
    if not files:
        raise typer.BadParameter("no file to read among the arguments", param_hint="INPUT...")
    given = {name: value for name, value in flags.items() if value is not None}
    return files, read_config(kind, file, overrides, given)


def _work(engine: EngineName, ray_address: str | None, workers: int | None) -> dict[str, Any]:
    chosen = engine_of(engine, ray_address, workers)
    return {"engine": chosen, "workers": workers if chosen is None else None}


def _audio(shards: Audio | None, windows_per_shard: int, audio_root: str | None, on_error: BadRow) -> dict[str, Any]:
    if shards is None:
        return {}
    from playhead.curate.shards import ShardConfig

    config = ShardConfig(
        kind=shards.value, windows_per_shard=windows_per_shard, audio_root=audio_root, on_error=on_error.value
    )
    return {"shards": config}


def _curate(
    what: tuple[list[str], str, WindowConfig | CutConfig], how: dict[str, Any], on_error: BadRow, *, as_json: bool
) -> None:
    from playhead.cli.curate_view import curating, print_windows
    from playhead.curate.run import curate_windows

    with ending_cleanly(as_json=as_json), curating() as progress:
        report = curate_windows(*what, on_error=on_error.value, progress=progress, **how)
    print_windows(report, as_json=as_json)
