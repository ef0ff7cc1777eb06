"""`--engine` and `--ray-address`, the same in every command that runs jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from playhead.jobs import Engine


class EngineName(StrEnum):
    """Where jobs run."""

    local = "local"
    ray = "ray"


EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="Where the work runs: local processes, or a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="The cluster: auto, host:port, ray://host:port; by default RAY_ADDRESS, or one started here."),
]


def engine_of(name: EngineName, ray_address: str | None, workers: int | None) -> Engine | None:
    """The engine that the options name; None for processes here."""
    if name is EngineName.local:
        if ray_address is not None:
            raise typer.BadParameter("needs --engine ray.", param_hint="--ray-address")
        return None
    from playhead.jobs import Ray

    return Ray(ray_address, workers)
