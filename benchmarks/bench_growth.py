"""How much a worker grows over many batches: python benchmarks/bench_growth.py [batches, by default a million]."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path

from playhead import Loader, Recipe, prepare_recipe

LIMIT_MB = 50


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    num_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps({"n": i, "text": "play head " * 5}) + "\n" for i in range(50_000)))
        source = {"name": "rows", "path": str(path)}
        values = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "collate": "list"}
        recipe = Recipe.parse({**values, "cache_dir": f"{folder}/cache"})
        prepare_recipe(recipe)
        with Loader(recipe, rank=0, world_size=1, workers=1, lookahead=16) as loader:
            batches = iter(loader)
            for _ in range(10_000):
                next(batches)
            (worker,) = multiprocessing.active_children()
            before, own_before, begin = (
                resident_mb(worker.pid),
                resident_mb(multiprocessing.current_process().pid),
                time.time(),
            )
            for _ in range(num_batches):
                next(batches)
            seconds = time.time() - begin
            after, own_after = resident_mb(worker.pid), resident_mb(multiprocessing.current_process().pid)
    print(f"{num_batches:,} batches in {seconds:.0f} s ({num_batches / seconds:,.0f}/s)")
    print(f"worker: {before:.1f} -> {after:.1f} MB, {after - before:+.1f} (at most +{LIMIT_MB})")
    print(f"owner:  {own_before:.1f} -> {own_after:.1f} MB, {own_after - own_before:+.1f}")


if __name__ == "__main__":
    main()
