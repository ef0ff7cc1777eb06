"""Checks of options: those that depend on each other, and files that are written at the end of a long run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer


def check_rank_has_world(rank: int | None, world: int | None) -> None:
    if rank is not None and world is None:
        raise typer.BadParameter(f"rank {rank} needs --world, the number of ranks.", param_hint="--rank")


def check_can_write(path: Path, option: str) -> None:
    """Refuse a file that could not be written, before the work for it is done. Nothing is left behind."""
    if path.is_dir():
        raise typer.BadParameter("is a directory: name a file.", param_hint=option)
    if path.exists() and not path.is_file():
        raise typer.BadParameter(f"{path} is not a regular file: name another.", param_hint=option)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is not a directory: create it first.", param_hint=option)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise typer.BadParameter(
            f"{folder} cannot be written to ({reason}): name a file elsewhere.", param_hint=option
        ) from None
