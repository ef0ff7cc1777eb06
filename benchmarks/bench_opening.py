"""Opening a plan near the start and ten million steps on, with a window of 65,536 draws and warm lengths.

Opening is what a resumed job does: map the indexes, resolve the recipe, plan the window of a cursor, lay its step out.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from playhead import Recipe, open_plan, prepare_recipe
from playhead.plan.cursor import Cursor, Place
from streams import log_normal

BATCHINGS = {
    "fixed": {"type": "fixed", "size": 16},
    "bucket": {"type": "bucket", "num": 30, "budget": 65_536},
    "pack": {"type": "pack", "max_length": 4096},
}
FAR = 10_000_000
REPEATS = 9


def make_recipe(folder: Path, batching: dict) -> Recipe:
    sources = []
    for i, rows in enumerate((300_000, 100_000)):
        path = folder / f"source{i}.jsonl"
        if not path.exists():
            lengths = log_normal(rows, 4096, seed=i).tolist()
            path.write_text("".join(json.dumps({"n": n}) + "\n" for n in lengths))
        sources.append({"name": f"source{i}", "path": str(path), "length": "n", "weight": 2 - i})
    values = {"sources": sources, "batching": batching, "lanes": 64, "weights_in": "length", "window_size": 65_536}
    recipe = Recipe.parse({**values, "cache_dir": str(folder / "cache")})
    prepare_recipe(recipe)
    return recipe


def opening(recipe: Recipe, cursor: Cursor) -> float:
    begin = time.perf_counter()
    assert open_plan(recipe).step_at(cursor) is not None
    return time.perf_counter() - begin


def main() -> None:
    table = Table("batching", "step 10", "step 10,000,000", "ratio (at most 1.2)", box=None)
    with tempfile.TemporaryDirectory() as folder:
        for name, batching in BATCHINGS.items():
            recipe = make_recipe(Path(folder), batching)
            steps = open_plan(recipe).window(0, 0).num_steps
            near = Cursor(10, (Place(0, 10),), 10, None)
            far = Cursor(FAR, (Place(FAR // steps, 0),), FAR, None)
            opening(recipe, near)
            times = np.array([(opening(recipe, near), opening(recipe, far)) for _ in range(REPEATS)])
            first, second = np.median(times, axis=0)
            table.add_row(name, f"{first * 1000:.1f} ms", f"{second * 1000:.1f} ms", f"{second / first:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
