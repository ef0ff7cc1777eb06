"""The options that all `curate` commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

INPUTS_HELP = "Manifests, directories, patterns, URLs; and key=value parameters."

Inputs = Annotated[list[str], typer.Argument(metavar="INPUT...", help=INPUTS_HELP)]
Out = Annotated[str, typer.Option(help="The directory to write, or a place in a store: s3://bucket/windows.")]
WorkDirectory = Annotated[
    str | None, typer.Option(help="For --out in a store: where the run takes place first; else a temporary directory.")
]
Config = Annotated[Path | None, typer.Option(help="A YAML file of parameters.")]
RowsPerShard = Annotated[int, typer.Option(min=1, help="Rows of the input to a file of rows.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Workers, or jobs at a time on a Ray cluster; by default one a core.")
]
Repeat = Annotated[int, typer.Option(min=1, help="Read the input this many times, to test at scale.")]
Force = Annotated[bool, typer.Option("--force", help="Write everything again.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class BadRow(StrEnum):
    """How a bad row is handled."""

    stop = "stop"
    reject = "reject"


class Audio(StrEnum):
    """The format of written audio."""

    wav = "wav"
    flac = "flac"


OnError = Annotated[BadRow, typer.Option(help="For a bad row: stop the run, or write it to rejected.jsonl.")]
Shards = Annotated[Audio | None, typer.Option(help="Also cut the audio of kept windows into WebDataset tars.")]
WindowsPerShard = Annotated[int, typer.Option(min=1, help="Windows to a tar of --shards.")]
AudioRoot = Annotated[
    str | None,
    typer.Option(help="Where relative audio paths begin: a folder or URL; by default their manifest's."),
]
