"""Delivery to one process, beside the plain way to do the same.

- Shuffled, blended JSONL rows as dictionaries: the loader without workers, and a loop of seek, readline and json.loads
  through a Python random order.
- The loader's own cost for a micro-batch of 32 small samples, beyond reading and decoding them.
- Worker processes with a map of 2 ms of pure Python a sample: two against one.
- playhead.torch.DataLoader, and a torch DataLoader over a bare map-style dataset that reads the same rows.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe
from playhead.feed.produce import Blueprint
from playhead.read import Reader
from playhead.torch import DataLoader

ROWS = 200_000
SIZE = 32
LARGE = 256


def with_generator(sample: dict[str, Any], generator: Any) -> dict[str, Any]:  # noqa: ARG001
    """A map that is given the sample's generator, and does nothing."""
    return sample


def busy(sample: dict[str, Any]) -> dict[str, Any]:
    """2 ms of pure Python."""
    until = time.process_time() + 0.002
    while time.process_time() < until:
        pass
    return sample


def make_recipe(folder: Path, **options: Any) -> Recipe:
    sources = []
    noise = random.Random(1)
    for name in ("a", "b"):
        path = folder / f"{name}.jsonl"
        if not path.exists():
            text = " ".join(noise.choices(["the", "play", "head", "goes", "on", "where", "it", "was"], k=30))
            with path.open("w") as file:
                for i in range(ROWS // 2):
                    file.write(json.dumps({"id": f"{name}-{i}", "n": i % 500, "lang": "en", "text": text}) + "\n")
        sources.append({"name": name, "path": str(path), "weight": 1})
    values = {"sources": sources, "batching": {"type": "fixed", "size": SIZE}, "cache_dir": str(folder / "cache")}
    recipe = Recipe.parse({**values, "collate": "list", **options})
    prepare_recipe(recipe)
    return recipe


def offsets_of(path: Path) -> list[int]:
    found = [0]
    with path.open("rb") as file:
        for line in file:
            found.append(found[-1] + len(line))
    return found[:-1]


def plain_loop(folder: Path, num_rows: int) -> float:
    """Rows a second of seek, readline and json.loads through a shuffled list of places."""
    files = {name: (folder / f"{name}.jsonl").open("rb") for name in ("a", "b")}
    order = [(name, offset) for name in files for offset in offsets_of(folder / f"{name}.jsonl")]
    random.Random(2).shuffle(order)
    begin = time.perf_counter()
    for name, offset in order[:num_rows]:
        file = files[name]
        file.seek(offset)
        json.loads(file.readline())
    return num_rows / (time.perf_counter() - begin)


def best(measure: Any, repeats: int = 5) -> float:
    return max(measure() for _ in range(repeats))


def loader_rate(recipe: Recipe, num_rows: int, **options: Any) -> float:
    with Loader(recipe, rank=0, world_size=1, **options) as loader:
        batches = iter(loader)
        for _ in islice(batches, 4):
            pass
        begin = time.perf_counter()
        done = 0
        while done < num_rows:
            done += len(next(batches).rows)
        return done / (time.perf_counter() - begin)


def own_cost(recipe: Recipe) -> float:
    """CPU seconds a micro-batch, beyond reading and decoding its rows: the best of many turns of each."""
    num, turns = 100, 30
    reader: Reader = Blueprint(recipe).build()._reader
    whole, bare = [], []
    with Loader(recipe, rank=0, world_size=1) as loader:
        batches = iter(loader)
        for _ in range(turns):
            begin = time.process_time()
            tasks = [batch.task for batch in islice(batches, num)]
            whole.append(time.process_time() - begin)
            chosen = [[t.work.request.picks.row[t.work.request.picks.source == n] for n in range(2)] for t in tasks]
            begin = time.process_time()
            for rows in chosen:
                for number, source in enumerate(reader._streams[0]):
                    source.raw(rows[number])
            bare.append(time.process_time() - begin)
    return (min(whole) - min(bare)) / num


class Bare(torch.utils.data.Dataset):
    """What one would write by hand: offsets in memory, seek, readline, json.loads."""

    def __init__(self, folder: Path) -> None:
        self.rows = [(name, offset) for name in "ab" for offset in offsets_of(folder / f"{name}.jsonl")]
        self.folder, self.files = folder, {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, offset = self.rows[index]
        if name not in self.files:
            self.files[name] = (self.folder / f"{name}.jsonl").open("rb")
        self.files[name].seek(offset)
        return json.loads(self.files[name].readline())


def torch_rates(folder: Path, recipe: Recipe, workers: int) -> tuple[float, float]:
    num = 1500
    ours = iter(DataLoader(recipe, rank=0, world_size=1, num_workers=workers))
    bare = torch.utils.data.DataLoader(
        Bare(folder), batch_size=SIZE, shuffle=True, num_workers=workers, collate_fn=list
    )
    rates = []
    for batches in (ours, iter(bare)):
        for _ in islice(batches, 50):
            pass
        begin = time.perf_counter()
        for _ in islice(batches, num):
            pass
        rates.append(num * SIZE / (time.perf_counter() - begin))
    return rates[0], rates[1]


def main() -> None:
    table = Table("what", "playhead", "beside it", "ratio", "target", box=None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = make_recipe(folder)
        large = make_recipe(folder, batching={"type": "fixed", "size": LARGE})
        plain = best(lambda: plain_loop(folder, 60_000))
        for what, rows in (
            (f"rows/s as dicts, {LARGE} at a time", best(lambda: loader_rate(large, 60_000))),
            ("the same, through a map with a generator", best(lambda: loader_rate(large, 60_000, map=with_generator))),
            (f"rows/s as dicts, {SIZE} at a time", best(lambda: loader_rate(recipe, 60_000))),
        ):
            table.add_row(what, f"{rows:,.0f}", f"{plain:,.0f}", f"{rows / plain:.2f}", "2.5")
        cost = min(own_cost(recipe) for _ in range(3))
        table.add_row("own cost a micro-batch of 32", f"{cost * 1e6:.0f} us", "", "", "150 us")
        slow = make_recipe(folder, map="bench_loading:busy")
        one, two = (loader_rate(slow, 1600, workers=workers) for workers in (1, 2))
        table.add_row("processes, 2 ms map, rows/s", f"{two:,.0f}", f"{one:,.0f} (one)", f"{two / one:.2f}", "1.8")
        for workers in (0, 2):
            ours, bare = torch_rates(folder, recipe, workers)
            what = f"torch DataLoader, {workers} workers, rows/s"
            table.add_row(what, f"{ours:,.0f}", f"{bare:,.0f}", f"{ours / bare:.2f}", "1.0")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
