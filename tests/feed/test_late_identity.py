"""A loader may be made before the process group: who it is, is asked when it matters, and never changes in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpora import write_text
from playhead import Recipe
from playhead.prepare import prepare

PROGRAM = Path(__file__).with_name("late_rank.py")
ALONE, GROUPED = "rank 0 of 1 (alone)", "rank {} of 2 (torch.distributed)"
LAUNCHERS = {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}


SCENARIOS = (
    "lanes",
    "rank_asked_first",
    "length_asked_first",
    "group_in_mid_run",
    "state_loaded_first",
    "evaluation",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each rank found in every scenario, by rank. The processes are shared, for torch takes long to start."""
    folder = tmp_path_factory.mktemp("late")
    sources = [write_text(folder, "a", [[5] * 40])]
    dev = {"sources": sources, "batching": {"type": "fixed", "size": 5}}
    fields = {"sources": sources, "lanes": 4, "epochs": 1, "sequence": None, "evaluation": {"dev": dev}}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**fields, "batching": {"type": "fixed", "size": 2}}))
    prepare(Recipe.load(path), workers=1)
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    command = [sys.executable, PROGRAM, path, *SCENARIOS]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = sorted(json.loads(line) for line in done.stdout.splitlines())
    return {scenario: [found for _, of, found in lines if of == scenario] for scenario in SCENARIOS}


def changed(rank: int) -> list[str]:
    return [
        "the rank changed after the loader first read it",
        f"now {GROUPED.format(rank)}",
        f"{ALONE}, as before",
    ]


def test_loaders_made_before_the_group_deliver_each_rank_its_own_lanes(found: Any) -> None:
    assert found["lanes"] == [[[0, 0], [[0, 2, 0, 2]] * 2], [[1, 1], [[1, 3, 1, 3]] * 2]]


def test_a_rank_that_was_told_before_the_group_is_not_changed_in_silence(found: Any) -> None:
    assert found["rank_asked_first"] == [changed(0), changed(1)]


def test_a_length_that_was_told_before_the_group_is_not_changed_in_silence(found: Any) -> None:
    assert found["length_asked_first"] == [[20, 10, changed(0)], [20, 10, changed(1)]]


def test_a_group_made_in_mid_run_ends_the_run_at_the_next_step(found: Any) -> None:
    assert found["group_in_mid_run"] == [[[0, 1, 2, 3], changed(0)], [[0, 1, 2, 3], changed(1)]]


def test_a_state_loaded_before_the_group_is_checked_against_the_ranks_once_they_are_known(found: Any) -> None:
    refusal = [
        "the state is in the middle of a step, where 2 ranks cannot take over",
        "3 of 4 lanes of step 0 are done",
        "a world size of 1",
    ]
    assert found["state_loaded_first"] == [[2, refusal], [3, refusal]]


def test_an_evaluation_set_without_lanes_is_planned_for_the_ranks_there_are(found: Any) -> None:
    first, second = found["evaluation"]
    assert len(first) == len(second) == 4
    assert sorted(row for batch in first + second for row in batch) == list(range(40))
