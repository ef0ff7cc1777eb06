"""The rank of this process and the world size. The one place that asks torch, jax or the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple, SupportsIndex

from playhead.errors import WorldSizeError

_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("OpenMPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_NTASKS"),
)


class Identity(NamedTuple):
    """A rank, the number of ranks, and where they were found."""

    rank: int
    world_size: int
    origin: str

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.origin})"


def identify(
    rank: int | None = None, world_size: int | None = None, environment: Mapping[str, str] | None = None
) -> Identity:
    """The place of this process, from the first that knows it whole.

    In order: the values given, torch.distributed, jax, the variables of torchrun, OpenMPI and SLURM; else alone. Rank
    and world size are never taken from two of them. Variables of which one is set and the other is not are refused
    when they are reached.
    """
    _check_given(rank, world_size)
    if rank is not None and world_size is not None:
        return Identity(int(rank), int(world_size), "given")
    environment = os.environ if environment is None else environment
    return _from_torch() or _from_jax() or _from_environment(environment) or Identity(0, 1, "alone")


def _check_given(rank: int | None, world_size: int | None) -> None:
    for name, value in (("rank", rank), ("world_size", world_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, SupportsIndex)):
            raise WorldSizeError(
                f"{name} is not a whole number",
                found=f"{value!r}, of type {type(value).__name__}",
                expected="an int",
            )
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise WorldSizeError(f"{given} is given without {missing}", fix="give both, or neither to have them detected")


def _from_torch() -> Identity | None:
    # A process that has not imported torch.distributed cannot have initialised it: never import it to ask.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Identity(distributed.get_rank(), distributed.get_world_size(), "torch.distributed")


def _from_jax() -> Identity | None:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return Identity(jax.process_index(), jax.process_count(), "jax")


def _from_environment(environment: Mapping[str, str]) -> Identity | None:
    for launcher, rank_name, size_name in _LAUNCHERS:
        rank, size = environment.get(rank_name), environment.get(size_name)
        if rank is None and size is None:
            continue
        if rank is None or size is None:
            found, missing = (rank_name, size_name) if size is None else (size_name, rank_name)
            raise WorldSizeError(
                f"{launcher} set only one of its two environment variables",
                found=f"{found}={environment[found]!r}, and no {missing}",
                expected="both variables or neither",
                fix=f"set {missing} or unset {found}; or call this after init_process_group; or give rank and "
                "world_size yourself",
            )
        if not (rank.isdecimal() and size.isdecimal()) or int(rank) >= int(size):
            raise WorldSizeError(
                f"{launcher} set an impossible rank in the environment",
                found=f"{rank_name}={rank!r}, {size_name}={size!r}",
                expected="a rank from 0 to world size - 1",
                fix="correct the variables, or give rank and world_size yourself",
            )
        return Identity(int(rank), int(size), launcher)
    return None
