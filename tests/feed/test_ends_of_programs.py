"""A program that ends with a loader that it has not closed ends silently, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deliveries import stream
from playhead.prepare import prepare

PROGRAM = """
import sys

import torch
from playhead import Loader, Recipe
from playhead.torch import DataLoader

kept = []


def main():
    global loader, batches
    recipe = Recipe.load(sys.argv[1])
    loader = eval(sys.argv[2])
    batches = iter(loader)
    for _ in range(5):
        kept.append(next(batches))


if __name__ == "__main__":
    main()
    print("done")
"""
LOADERS = {
    "numpy, none": "Loader(recipe, rank=0, world_size=1)",
    "numpy, threads": 'Loader(recipe, rank=0, world_size=1, workers=2, worker_kind="thread")',
    "numpy, processes": "Loader(recipe, rank=0, world_size=1, workers=2)",
    "torch, none": "DataLoader(recipe, rank=0, world_size=1)",
    "torch, forks": "DataLoader(recipe, rank=0, world_size=1, num_workers=2)",
    "torch, spawned": 'DataLoader(recipe, rank=0, world_size=1, num_workers=2, multiprocessing_context="spawn")',
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_left_open_is_closed_at_the_end_of_the_program(tmp_path: Path, kind: str) -> None:
    recipe = stream(tmp_path, "zip")
    prepare(recipe, workers=1)
    copies = tmp_path / "copies"
    values = recipe.to_dict() | {"shard_cache": {"dir": str(copies), "max_bytes": 50_000_000}}
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", "recipe.json", LOADERS[kind]]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}  # where the recipe's map is
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert not [*(copies / "ranks").iterdir()]
