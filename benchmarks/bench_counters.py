"""What the counters of a loader cost: the same batches with them and without, in turns.

    python benchmarks/bench_counters.py [turns]

Rows of 4,096 tokens, as language models are trained on; and, as the worst case, small rows from local files, where a
micro-batch takes the least time. The figure is the median over pairs of turns, each with and without counters right
after each other; the target is less than 1 %. For its own noise, pairs of turns without counters are compared in the
same way. All time is that of the CPU, of the worker and its owner together: what else the machine does hardly matters.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from bench_small_rows import COLLATIONS, make_recipe, write_rows
from playhead import Recipe
from playhead.feed import stopwatch
from playhead.feed.counters import Counters
from playhead.feed.delivery import Delivery
from playhead.feed.pool import Inline, Pool
from playhead.feed.processes import Processes, WorkerOptions
from playhead.feed.produce import Blueprint
from playhead.feed.rank_stream import RankStream

SIZES = (256, 32)  # rows in a micro-batch
BATCHES = 256  # in a turn: as many as are added up at a time, so that every turn pays for that
SMALL = ("list", "padded")
NOTE = Counters.note


def write_long_rows(path: Path) -> None:
    """Rows as language models are trained on."""
    noise = random.Random(1)
    with path.open("w") as file:
        for i in range(1000):
            tokens = noise.choices(range(1, 50_000), k=4096)
            file.write(json.dumps({"id": f"row-{i}", "tokens": tokens, "n": len(tokens)}) + "\n")


def switch(on: bool, *_: Any) -> None:
    """Turn the counters of this process on or off."""
    stopwatch._ENABLED = on
    Counters.note = NOTE if on else _ignore  # type: ignore[method-assign]


def _ignore(*_: Any) -> None:
    pass


def open_loader(recipe: Recipe, workers: int, on: bool) -> Delivery:
    blueprint, stream = Blueprint(recipe), RankStream(recipe, None, 0, 1)
    options = WorkerOptions(max(workers, 1), setup=partial(switch, on))
    pool: partial[Pool] = (
        partial(Processes, blueprint, options, stream.describe) if workers else partial(Inline, blueprint)
    )
    return Delivery(stream, blueprint, pool)


def cpu_seconds(process: int) -> float:
    """The CPU time that a process, also another one, has taken so far."""
    return time.clock_gettime((~process << 3) | 2)  # its clock, as clock_getcpuclockid(3) makes it


def turn(batches: Iterator[Any], num: int, on: bool, processes: Sequence[int]) -> float:
    switch(on)
    begin = sum(map(cpu_seconds, processes))
    for _ in islice(batches, num):
        pass
    return (sum(map(cpu_seconds, processes)) - begin) / num


def new_child(before: set[int]) -> list[int]:
    """The worker that was started since; none without workers."""
    return [child.pid for child in active_children() if child.pid is not None and child.pid not in before]


def compare(recipe: Recipe, workers: int, turns: int) -> tuple[float, float, float]:
    """Seconds of a micro-batch without counters, what they add to it as a share, and the same of nothing."""
    kinds = {"without": False, "with": True, "again": False}
    loaders = {name: open_loader(recipe, workers, on) for name, on in kinds.items()}
    batches = {name: iter(loader) for name, loader in loaders.items()}
    found: dict[str, list[float]] = {name: [] for name in kinds}
    order = list(kinds)
    processes: dict[str, list[int]] = {}
    for name in order:
        before = {child.pid for child in active_children()}
        turn(batches[name], BATCHES, kinds[name], [os.getpid()])
        processes[name] = [os.getpid(), *new_child(before)]
    for number in range(turns + 2):
        for name in order if number % 2 else reversed(order):
            seconds = turn(batches[name], BATCHES, kinds[name], processes[name])
            if number >= 2:
                found[name].append(seconds)
    for loader in loaders.values():
        loader.close()
    shares = [
        median(own / base for own, base in zip(found[name], found["without"], strict=True)) - 1
        for name in ("with", "again")
    ]
    return median(found["without"]), shares[0], shares[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", nargs="?", type=int, default=30, help="turns of each contender")
    turns = parser.parse_args().turns
    console = Console(width=100)
    console.print("micro-batches: CPU time without counters, what counters add (target: below 1 %), noise")
    with tempfile.TemporaryDirectory() as name:
        short, long = Path(name) / "rows.jsonl", Path(name) / "long.jsonl"
        write_rows(short)
        write_long_rows(long)
        small = [(f"{size} rows, {collation}", short, size, collation) for size in SIZES for collation in SMALL]
        for about, path, size, collation in [("8 rows of 4,096 tokens, padded", long, 8, "padded"), *small]:
            recipe = make_recipe(path, Path(name) / "cache", size, **COLLATIONS[collation])
            for workers in (0, 1):
                seconds, added, noise = compare(recipe, workers, turns)
                what = f"{about}, {workers or 'no'} process"
                console.print(f"{what}: {seconds * 1e6:,.0f} us, {added:+.2%}, {noise:+.2%}")


if __name__ == "__main__":
    main()
