"""Small rows: JSONL of about 225 bytes with token ids, lengths checked, shuffled; microseconds a micro-batch.

For 256 and 32 rows, as lists of dictionaries and padded, in this process and through one and two worker processes. The
first line of each size is what it takes to read and decode the rows and nothing else. To compare two versions of
Playhead run it with each in turn (`PYTHONPATH`): the best of many turns is hardly touched by what else runs.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe

ROWS = 200_000
WORDS = ("the", "play", "head", "goes", "on", "where", "it", "was")
COLLATIONS: dict[str, dict[str, Any]] = {
    "list": {"collate": "list"},
    "padded": {},
    "padded, two fields": {"fields": ["tokens", "n"]},
}


def write_rows(path: Path) -> None:
    noise = random.Random(1)
    with path.open("w") as file:
        for i in range(ROWS):
            tokens = [noise.randrange(1, 1000) for _ in range(noise.randrange(15, 35))]
            text = " ".join(noise.choices(WORDS, k=12))
            file.write(json.dumps({"id": f"row-{i}", "text": text, "tokens": tokens, "n": len(tokens)}) + "\n")


def make_recipe(path: Path, size: int, **options: Any) -> Recipe:
    source = {"name": "rows", "path": str(path), "length": {"field": "n", "unit": "tokens"}}
    batching = {"type": "fixed", "size": size}
    recipe = Recipe.parse({"sources": [source], "batching": batching, "cache_dir": f"{path}.cache", **options})
    prepare_recipe(recipe)
    return recipe


def bare_turns(path: Path, size: int, turns: int) -> list[tuple[float, float]]:
    """Wall and CPU seconds to read and decode as many rows as a micro-batch has, from random places."""
    offsets = [0]
    with path.open("rb") as file:
        for line in file:
            offsets.append(offsets[-1] + len(line))
    noise, decode = random.Random(2), msgspec.json.Decoder(dict[str, Any]).decode
    descriptor = os.open(path, os.O_RDONLY)
    found = []
    for _ in range(turns):
        chosen = noise.choices(range(ROWS), k=50 * size)
        places = [(offsets[row], offsets[row + 1] - offsets[row]) for row in chosen]
        batches = [places[first : first + size] for first in range(0, len(places), size)]
        begin = time.perf_counter(), time.process_time()
        for batch in batches:
            _ = [decode(os.pread(descriptor, num_bytes, first)) for first, num_bytes in batch]
        found.append(((time.perf_counter() - begin[0]) / 50, (time.process_time() - begin[1]) / 50))
    os.close(descriptor)
    return found


def turns_of(recipe: Recipe, workers: int, num: int, turns: int) -> list[tuple[float, float]]:
    """Wall and CPU seconds of this process for a micro-batch, in each turn."""
    found = []
    with Loader(recipe, rank=0, world_size=1, workers=workers) as loader:
        batches = iter(loader)
        for _ in islice(batches, num):
            pass
        for _ in range(turns):
            begin = time.perf_counter(), time.process_time()
            for _ in islice(batches, num):
                pass
            found.append(((time.perf_counter() - begin[0]) / num, (time.process_time() - begin[1]) / num))
    return found


def add(table: Table, what: str, turns: list[tuple[float, float]]) -> None:
    wall, cpu = zip(*turns, strict=True)
    table.add_row(what, *[f"{value * 1e6:,.0f}" for value in (min(wall), median(wall), min(cpu), median(cpu))])


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    table = Table("us a micro-batch", "wall, best", "wall, median", "CPU here, best", "CPU here, median", box=None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        write_rows(path)
        for size in (256, 32):
            add(table, f"{size} rows, read and decoded", bare_turns(path, size, turns))
            for name, options in COLLATIONS.items():
                recipe = make_recipe(path, size, **options)
                for workers in (0, 1, 2):
                    what = f"{size} rows, {name}, {workers or 'no'} process{'' if workers == 1 else 'es'}"
                    add(table, what, turns_of(recipe, workers, 50 if size == 256 else 250, turns))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
