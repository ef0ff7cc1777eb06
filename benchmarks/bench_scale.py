"""Work that grows: one huge file, a thousand sources, twenty thousand shards.

python benchmarks/bench_scale.py [gigabytes of the one file, by default 1]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import playhead  # by itself it imports nothing heavy, which worker processes would import too
from bench_indexing import write_rows

REPEATS = 3
NUM_SOURCES = 1_000
NUM_SHARDS = 20_000
FIXED = {"type": "fixed", "size": 8}


def seconds(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def one_file(folder: Path, gigabytes: float) -> None:
    """Index one file with one worker and with two, in turn."""
    path = folder / "huge.jsonl"
    write_rows(path, 225, int(gigabytes * 1e9))
    source = {"name": "huge", "path": str(path), "length": {"field": "duration", "unit": "seconds"}}
    recipe = playhead.Recipe.parse(
        {"sources": [source], "batching": FIXED, "lanes": 1, "cache_dir": str(folder / "cache")}
    )
    times: dict[int, list[float]] = {1: [], 2: []}
    playhead.prepare_recipe(recipe, workers=2)  # kernels, and the file in the page cache
    for _ in range(REPEATS):
        for workers, found in times.items():
            found.append(seconds(lambda w=workers: playhead.prepare_recipe(recipe, workers=w, force=True)))
    one, two = (statistics.median(found) for found in times.values())
    path.unlink()
    print(
        f"one file of {gigabytes:g} GB: one worker {one:.2f} s, two {two:.2f} s, ratio {one / two:.2f} (at least 1.7)"
    )


def many(name: str, recipe: playhead.Recipe) -> None:
    """Prepare, prepare again, open."""
    first = seconds(lambda: playhead.prepare_recipe(recipe))
    again = statistics.median(seconds(lambda: playhead.prepare_recipe(recipe)) for _ in range(REPEATS))
    opening = statistics.median(seconds(lambda: playhead.Loader(recipe, rank=0, world_size=1)) for _ in range(REPEATS))
    print(f"{name}: first prepare {first:.2f} s, second {again:.2f} s, opening {opening:.3f} s")


def rows_in(folder: Path, count: int) -> None:
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:05d}.jsonl").write_text('{"tokens": [1, 2], "n": 2}\n' * 3)


def main() -> None:
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        one_file(folder, gigabytes)
        rows_in(folder / "sources", NUM_SOURCES)
        sources = [
            {"name": f"s{i}", "path": str(folder / f"sources/{i:05d}.jsonl"), "length": "n", "weight": 1}
            for i in range(NUM_SOURCES)
        ]
        values = {"batching": FIXED, "lanes": 4, "cache_dir": str(folder / "sources-cache")}
        name = f"{NUM_SOURCES:,} sources (second prepare under 2 s, opening under 0.5 s)"
        many(name, playhead.Recipe.parse({"sources": sources, **values}))
        rows_in(folder / "shards", NUM_SHARDS)
        source = {"name": "a", "path": str(folder / "shards/*.jsonl"), "length": "n"}
        values["cache_dir"] = str(folder / "shards-cache")
        many(f"{NUM_SHARDS:,} shards (opening under 0.3 s)", playhead.Recipe.parse({"sources": [source], **values}))


if __name__ == "__main__":
    main()
