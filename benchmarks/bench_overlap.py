"""A trainer on a slow store: how long it waits, with 1, 2, 4 and 8 workers.

    python benchmarks/bench_overlap.py [steps] [repeats]

nginx on loopback behind a proxy that shares 200 MB/s among all connections and adds 50 ms to every request. A step
takes 8 MB, from rows of 1 MB in tar files, shuffled over all of them; the trainer takes 100 ms for it. The targets:
after the first step it waits less than 2 % of the time, and workers added never make it slower. Then the same loader is
read as fast as it delivers: the store gives 25 steps a second at most. The last rows show what the parts are worth:
without look-ahead threads, and without the queue that the workers of a node share. Figures are medians of repeats, the
cases in turn; beside what the trainer waited is the part for batches that were not made yet.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tarfile
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from playhead import Loader, Recipe, prepare_recipe

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from slow_proxy import Network, slow_proxy
from store_servers import has, nginx

SHARDS, ROWS, ROW_BYTES, ROWS_A_STEP = 4, 40, 1_000_000, 8
LATENCY_SECONDS, BYTES_PER_SECOND, STEP_SECONDS = 0.05, 200e6, 0.1
QUEUE = "PLAYHEAD_IN_FLIGHT_MB"
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("1 worker", {"workers": 1}, ""),
    ("2 workers", {"workers": 2}, ""),
    ("4 workers", {"workers": 4}, ""),
    ("8 workers", {"workers": 8}, ""),
    ("1 worker, no look-ahead threads", {"workers": 1, "fetch_threads": 0}, ""),
    ("8 workers, no queue", {"workers": 8}, "0"),
]


def write_shards(folder: Path) -> None:
    noise = np.random.default_rng(1)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"part-{shard}.tar", "w") as tar:
            for row in range(ROWS):
                file = io.BytesIO()
                np.save(file, noise.integers(0, 1 << 15, ROW_BYTES // 2).astype(np.int16))
                info = tarfile.TarInfo(f"{row:04}.npy")
                info.size = file.tell()
                file.seek(0)
                tar.addfile(info, file)


def make_recipe(address: str, cache: Path) -> Recipe:
    source = {"name": "rows", "path": f"{address}/part-{{0..{SHARDS - 1}}}.tar"}
    batching = {"type": "fixed", "size": ROWS_A_STEP}
    return Recipe.parse({"sources": [source], "batching": batching, "cache_dir": str(cache), "collate": "pad"})


def run(recipe: Recipe, steps: int, how: dict[str, Any]) -> dict[str, float]:
    """Steps of the trainer, then as many as fast as they come."""
    timings: list[Any] = []
    with Loader(recipe, rank=0, world_size=1, **how) as loader:
        loader.watch(lambda timing, asked, given: timings.append((timing, asked, given)))
        begin = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first = time.perf_counter() - begin
        time.sleep(STEP_SECONDS)
        begin = time.perf_counter()
        for _ in islice(batches, steps):
            time.sleep(STEP_SECONDS)
        took = time.perf_counter() - begin
        begin = time.perf_counter()
        for _ in islice(batches, steps):
            pass
        at_full_speed = steps / (time.perf_counter() - begin)
    timing = timings[0][0]
    waited = sum(given - asked for _, asked, given in timings[1 : steps + 1])
    late = sum(max(0.0, min(found.ended, given) - asked) for found, asked, given in timings[1 : steps + 1])
    return {
        "first": first,
        "first_made": timing.ended - (timing.fetch_began or timing.began),
        "waited": waited / took,
        "late": late / took,
        "rate": steps / took,
        "full": at_full_speed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=int, default=60, help="steps of the trainer in each case")
    parser.add_argument("repeats", nargs="?", type=int, default=3, help="of every case")
    chosen = parser.parse_args()
    console = Console(width=120)
    if not has("nginx"):
        console.print("nginx is not installed")
        return
    with tempfile.TemporaryDirectory() as name:
        data, work = Path(name, "data"), Path(name, "work")
        data.mkdir()
        work.mkdir()
        write_shards(data)
        with nginx(data, work) as port, slow_proxy(port) as proxy:
            recipe = make_recipe(proxy.address, Path(name, "cache"))
            prepare_recipe(recipe, workers=1)
            proxy.set(**vars(Network(LATENCY_SECONDS, BYTES_PER_SECOND)))
            console.print(
                "case: time to the first step (to make its batch); waited after it (not made yet); steps a second; "
                "at full speed"
            )
            runs: dict[str, list[dict[str, float]]] = {}
            for _ in range(chosen.repeats):
                for case, how, bound in CASES:
                    os.environ[QUEUE] = bound
                    runs.setdefault(case, []).append(run(recipe, chosen.steps, how))
            for case, repeats in runs.items():
                found = {name: median(each[name] for each in repeats) for name in repeats[0]}
                console.print(
                    f"{case}: {found['first']:.1f} s ({found['first_made']:.2f} s); {found['waited']:.1%} "
                    f"({found['late']:.1%}); {found['rate']:.2f}; {found['full']:.1f}"
                )


if __name__ == "__main__":
    main()
