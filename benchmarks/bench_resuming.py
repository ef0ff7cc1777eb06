"""Resuming: from loading a state to the first batch, near the start and ten million steps on; and the size of states.

The index is open already, lengths are warm, a window has 65,536 draws, no workers.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench_opening import BATCHINGS, FAR, REPEATS, make_recipe
from playhead import Loader, Recipe, prepare_recipe

MANY = 1000


def with_tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": np.zeros(sample["n"], np.int32)}


def first_batch(loader: Loader, state: dict[str, Any]) -> float:
    begin = time.perf_counter()
    loader.load_state_dict(state)
    next(iter(loader))
    return time.perf_counter() - begin


def many_sources(folder: Path) -> int:
    """The bytes of a state with a thousand sources."""
    sources = []
    for i in range(MANY):
        path = folder / f"many-{i:04}.jsonl"
        path.write_text(json.dumps({"n": i}) + "\n")
        sources.append({"name": f"a source with quite a long name, number {i}", "path": str(path), "length": "n"})
    values = {"sources": sources, "batching": {"type": "fixed", "size": 4}, "lanes": 64, "sequence": None}
    recipe = Recipe.parse({**values, "cache_dir": str(folder / "many")})
    prepare_recipe(recipe)
    loader = Loader(recipe, rank=0, world_size=1)
    for _ in zip(loader, range(100), strict=False):
        pass
    return len(json.dumps(loader.state_dict()))


def main() -> None:
    table = Table("batching", "step 10", "step 10,000,000", "ratio (at most 1.2)", "state", box=None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, batching in BATCHINGS.items():
            loader = Loader(make_recipe(folder, batching), rank=0, world_size=1, map=with_tokens)
            batches = iter(loader)
            near = next(batch for batch in batches if batch.is_last_in_step and batch.step == 9)
            state = loader.state_dict(after=near)
            batches.close()
            steps = loader._stream.plan.window(0, 0).num_steps
            far = {**state, "step": FAR, "turn": FAR, "delivered": FAR, "places": [[FAR // steps, 0]]}
            first_batch(loader, state)
            times = np.array([(first_batch(loader, state), first_batch(loader, far)) for _ in range(REPEATS)])
            first, second = np.median(times, axis=0)
            ratio = f"{second / first:.2f}"
            size = f"{len(json.dumps(far))} bytes"
            table.add_row(kind, f"{first * 1000:.1f} ms", f"{second * 1000:.1f} ms", ratio, size)
        Console(width=120).print(table)
        print(f"state with {MANY:,} sources: {many_sources(folder)} bytes (at most 1,024)")


if __name__ == "__main__":
    main()
