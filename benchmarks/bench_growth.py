"""How much processes grow over many batches: python benchmarks/bench_growth.py [batches, by default a million].

A million small batches of one worker, then a thousandth as many of 20 MB from two.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import resource
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from playhead import Loader, Recipe, prepare_recipe

LIMIT_MB = 50


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def batches_of(folder: str, path: Path, **options: Any) -> Recipe:
    values = {"sources": [{"name": "rows", "path": str(path)}], "cache_dir": f"{folder}/cache", **options}
    recipe = Recipe.parse(values)
    prepare_recipe(recipe)
    return recipe


def small(folder: str) -> Recipe:
    """Micro-batches of two short texts."""
    path = Path(folder) / "rows.jsonl"
    path.write_text("".join(json.dumps({"n": i, "text": "play head " * 5}) + "\n" for i in range(50_000)))
    return batches_of(folder, path, batching={"type": "fixed", "size": 2}, collate="list")


def heavy(folder: str) -> Recipe:
    """Micro-batches of 20 MB: 32 signals of 10 s at 16 kHz."""
    path = Path(folder) / "signals.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(96):
            content = io.BytesIO()
            np.save(content, np.full(160_000, i, np.float32))
            about = tarfile.TarInfo(f"{i:03}.npy")
            about.size = content.tell()
            content.seek(0)
            tar.addfile(about, content)
    return batches_of(folder, path, batching={"type": "fixed", "size": 32})


def measure(name: str, recipe: Recipe, num_batches: int, warm_up: int, **workers: int) -> None:
    with Loader(recipe, rank=0, world_size=1, **workers) as loader:
        batches = iter(loader)
        for _ in range(warm_up):
            next(batches)
        pids = [worker.pid for worker in multiprocessing.active_children()] + [multiprocessing.current_process().pid]
        before, begin = [resident_mb(pid) for pid in pids], time.time()
        for _ in range(num_batches):
            next(batches)
        seconds = time.time() - begin
        after = [resident_mb(pid) for pid in pids]
        maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:playhead" in line]
    print(f"{num_batches:,} {name} batches in {seconds:.0f} s ({num_batches / seconds:,.0f}/s)")
    for who, first, last in zip([*["worker"] * (len(pids) - 1), "owner"], before, after, strict=True):
        print(f"  {who}: {first:.1f} -> {last:.1f} MB, {last - first:+.1f} (at most +{LIMIT_MB})")
    print(f"  buffers of shared memory: {len(maps)}")


def main() -> None:
    num_batches = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        measure("small", small(folder), num_batches, 10_000, workers=1, lookahead=16)
    with tempfile.TemporaryDirectory() as folder:
        measure("heavy", heavy(folder), max(1, num_batches // 1_000), 100, workers=2)
    left = [path.name for path in Path("/dev/shm").iterdir() if "playhead" in path.name]  # noqa: S108
    left += [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:playhead" in line]
    print(f"left behind: {left or 'nothing'}")


if __name__ == "__main__":
    main()
