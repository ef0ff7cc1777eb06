from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from playhead.deal import identify
from playhead.errors import WorldSizeError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1, "alone")),
        (TORCHRUN, (3, 8, "torchrun")),
        (OPENMPI, (1, 4, "OpenMPI")),
        (SLURM, (5, 6, "SLURM")),
        ({**SLURM, **OPENMPI, **TORCHRUN}, (3, 8, "torchrun")),
        ({"SLURM_PROCID": "5", **TORCHRUN}, (3, 8, "torchrun")),
    ],
)
def test_the_launcher_says_who_we_are(environment: dict, expected: tuple) -> None:
    assert tuple(identify(environment=environment)) == expected


def test_what_is_given_wins() -> None:
    assert identify(1, 2, TORCHRUN)[:2] == (1, 2)


@pytest.mark.parametrize("half", [{"rank": 1}, {"world_size": 2}])
def test_half_an_identity_is_refused(half: dict) -> None:
    with pytest.raises(WorldSizeError, match="without"):
        identify(**half)


@pytest.mark.parametrize("value", ["0", 1.0, True, [0]])
def test_a_rank_that_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(WorldSizeError, match="rank is not a whole number"):
        identify(value, 2)  # type: ignore[arg-type]
    with pytest.raises(WorldSizeError, match="world_size is not a whole number"):
        identify(0, value)  # type: ignore[arg-type]
    assert type(identify(np.int64(1), np.int32(2)).rank) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"RANK": "3"}, "RANK='3', and no WORLD_SIZE"),
        ({"WORLD_SIZE": "8"}, "WORLD_SIZE='8', and no RANK"),
        ({"WORLD_SIZE": "8", **SLURM}, "WORLD_SIZE='8', and no RANK"),
        ({"SLURM_PROCID": "0"}, "SLURM_PROCID='0', and no SLURM_NTASKS"),
    ],
)
def test_half_set_variables_are_refused_where_nothing_before_them_answered(environment: dict, found: str) -> None:
    with pytest.raises(WorldSizeError, match="only one of its two") as caught:
        identify(environment=environment)
    assert caught.value.found == found
    assert identify(0, 1, environment).origin == "given"


@pytest.mark.parametrize("rank", ["8", "x", "-1"])
def test_an_impossible_rank_in_the_environment_is_refused(rank: str) -> None:
    with pytest.raises(WorldSizeError, match="torchrun"):
        identify(environment={"RANK": rank, "WORLD_SIZE": "8"})


def test_an_initialised_torch_process_group_says_who_we_are() -> None:
    """In a process of its own: a process group is global state."""
    program = """
import tempfile, torch.distributed as dist
from playhead.deal import identify
assert identify()[:2] == (0, 1)
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    assert tuple(identify()) == (0, 1, "torch.distributed"), identify()
    assert identify(2, 4).rank == 2
    dist.destroy_process_group()
"""
    clean = {k: v for k, v in os.environ.items() if k not in {**TORCHRUN, **OPENMPI, **SLURM}}
    subprocess.run([sys.executable, "-c", program], check=True, env=clean, timeout=120)


def test_asking_imports_neither_torch_nor_jax() -> None:
    program = "import sys, playhead.deal as d; d.identify(); assert not {'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
