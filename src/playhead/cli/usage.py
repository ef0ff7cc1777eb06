"""Checks of options that depend on each other."""

from __future__ import annotations

import typer


def check_rank_has_world(rank: int | None, world: int | None) -> None:
    if rank is not None and world is None:
        raise typer.BadParameter(f"rank {rank} needs --world, the number of ranks.", param_hint="--rank")
