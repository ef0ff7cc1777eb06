"""What a loader made before the process group does once the group is there; each scenario is a function.

Usage: late_rank.py RECIPE SCENARIO ... Ranks are processes that `mp.spawn` starts; what each finds goes to standard
output.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from itertools import islice
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as mp

from playhead import Loader, PlayheadError, Recipe
from playhead.torch import DataLoader

WORLD = 2


def lanes(recipe: Recipe, join: Any) -> Any:
    loaders = [DataLoader(recipe), Loader(recipe)]
    join()
    found = [[batch.lane for batch in islice(loader, 4)] for loader in loaders]
    return [loader.rank for loader in loaders], found


def rank_asked_first(recipe: Recipe, join: Any) -> Any:
    loader = DataLoader(recipe)
    assert (loader.rank, loader.world_size) == (0, 1)
    join()
    return _error(lambda: next(iter(loader)))


def length_asked_first(recipe: Recipe, join: Any) -> Any:
    loader = Loader(recipe)
    num_batches = len(loader)
    join()
    return num_batches, len(Loader(recipe)), _error(lambda: next(iter(loader)))


def group_in_mid_run(recipe: Recipe, join: Any) -> Any:
    """Batches are fetched up to the end of the step; the next step does not start."""
    loader = Loader(recipe)
    batches = iter(loader)
    found = [next(batches).lane for _ in range(2)]
    join()
    found += [next(batches).lane for _ in range(2)]
    return found, _error(lambda: next(batches))


def state_loaded_first(recipe: Recipe, join: Any) -> Any:
    """After three of four lanes only one rank can go on: that is found out when the group is there."""
    whole = Loader(recipe, rank=0, world_size=1)
    states = [whole.state_dict(after=batch) for batch in islice(whole, 3)]
    fits, fails = DataLoader(recipe), DataLoader(recipe)
    fits.load_state_dict(states[1])
    fails.load_state_dict(states[2])
    join()
    return next(iter(fits)).lane, _error(lambda: next(iter(fails)))


def evaluation(recipe: Recipe, join: Any) -> Any:
    """A set without lanes has one for each rank, so that its plan waits for the group, and a state too."""
    saved = Loader(recipe, split="dev", rank=0, world_size=WORLD)
    state = saved.state_dict(after=next(iter(saved)))
    loader, resumed = DataLoader(recipe, split="dev"), DataLoader(recipe, split="dev")
    resumed.load_state_dict(state)
    join()
    rows = [batch.rows.tolist() for batch in loader]
    assert [batch.rows.tolist() for batch in resumed] == rows[1:]
    return rows


def _error(act: Any) -> Any:
    try:
        act()
    except PlayheadError as error:
        return [error.problem, error.found, error.expected]
    return None


def work(rank: int, path: str, scenarios: list[str], folder: str) -> None:
    for scenario in scenarios:
        meeting = f"file://{folder}/{scenario}"

        def join(meeting: str = meeting) -> None:
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)

        found = globals()[scenario](Recipe.load(path), join)
        os.write(1, json.dumps([rank, scenario, found]).encode() + b"\n")
        dist.barrier()  # a rank that leaves while the other still connects breaks the other's group
        dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (sys.argv[1], sys.argv[2:], folder), nprocs=WORLD)
