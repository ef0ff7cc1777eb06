"""Small rows: JSONL of about 225 bytes with token ids, lengths checked, shuffled; microseconds a micro-batch.

For 256 and 32 rows, as lists of dictionaries and padded, in one process and through one and two worker processes. The
first line of each size is what it takes to read and decode the rows and nothing else. `--against COMMIT` measures that
version of Playhead beside this one: each has a process of its own, and they take turns. The best of many turns is
hardly touched by what else runs on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe

ROOT = Path(__file__).parents[1]
ROWS = 200_000
SIZES = {256: 50, 32: 250}  # rows in a micro-batch, and micro-batches in a turn
OWN_COST_BEFORE = 46  # microseconds, where states and positions were made for every micro-batch
WORDS = ("the", "play", "head", "goes", "on", "where", "it", "was")
COLLATIONS: dict[str, dict[str, Any]] = {
    "list": {"collate": "list"},
    "padded": {},
    "padded, two fields": {"fields": ["tokens", "n"]},
}

Turn = tuple[float, float]  # wall and CPU seconds of one process for a micro-batch


def write_rows(path: Path) -> None:
    noise = random.Random(1)
    with path.open("w") as file:
        for i in range(ROWS):
            tokens = [noise.randrange(1, 1000) for _ in range(noise.randrange(15, 35))]
            text = " ".join(noise.choices(WORDS, k=12))
            file.write(json.dumps({"id": f"row-{i}", "text": text, "tokens": tokens, "n": len(tokens)}) + "\n")


def make_recipe(path: Path, cache: Path, size: int, **options: Any) -> Recipe:
    source = {"name": "rows", "path": str(path), "length": {"field": "n", "unit": "tokens"}}
    batching = {"type": "fixed", "size": size}
    recipe = Recipe.parse({"sources": [source], "batching": batching, "cache_dir": str(cache), **options})
    prepare_recipe(recipe)
    return recipe


def bare_turns(path: Path, size: int, turns: int) -> list[Turn]:
    """What it takes to read and decode as many rows as a micro-batch has, from random places."""
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


def take(batches: Iterator[Any], num: int) -> Turn:
    begin = time.perf_counter(), time.process_time()
    for _ in islice(batches, num):
        pass
    return (time.perf_counter() - begin[0]) / num, (time.process_time() - begin[1]) / num


def serve(path: Path, cache: Path) -> None:
    """Take a turn for every line that comes; what it names is opened when it is first named in a row."""
    named, loader, batches = "", None, iter(())
    for line in sys.stdin:
        size, collation, workers = json.loads(line)
        if line != named:
            if loader is not None:
                loader.close()
            recipe = make_recipe(path, cache, size, **COLLATIONS[collation])
            loader = Loader(recipe, rank=0, world_size=1, workers=workers)
            named, batches = line, iter(loader)
            take(batches, SIZES[size])
        print(json.dumps(take(batches, SIZES[size])), flush=True)
    if loader is not None:
        loader.close()


class Version:
    """A version of Playhead, in a process that takes turns."""

    def __init__(self, source: Path, path: Path, cache: Path) -> None:
        command = [sys.executable, __file__, "--serve", str(path), str(cache)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self._process = subprocess.Popen(command, env=environment, **pipes)  # noqa: S603 - this program

    def turn(self, size: int, collation: str, workers: int) -> Turn:
        self._process.stdin.write(json.dumps((size, collation, workers)) + "\n")
        self._process.stdin.flush()
        wall, cpu = json.loads(self._process.stdout.readline())
        return wall, cpu

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def checked_out(commit: str | None, folder: Path) -> Iterator[Path | None]:
    """A commit in a directory of its own."""
    if commit is None:
        yield None
        return
    worktree = ("git", "-C", str(ROOT), "worktree")
    subprocess.run([*worktree, "add", "--detach", "--quiet", folder, commit], check=True)  # noqa: S603 - git
    try:
        yield folder / "src"
    finally:
        subprocess.run([*worktree, "remove", "--force", folder], check=True)  # noqa: S603 - git


def measure(path: Path, before: Path | None, turns: int) -> dict[str, dict[tuple[int, str, int], list[Turn]]]:
    """The turns of each version with each way to make batches."""
    versions = {"now": Version(ROOT / "src", path, path.with_name("cache"))}
    if before is not None:
        versions["before"] = Version(before, path, path.with_name("cache-before"))
    found: dict[str, dict[tuple[int, str, int], list[Turn]]] = {name: {} for name in versions}
    for size in SIZES:
        for collation in COLLATIONS:
            for workers in (0, 1, 2):
                for _ in range(turns):
                    for name, version in versions.items():
                        taken = found[name].setdefault((size, collation, workers), [])
                        taken.append(version.turn(size, collation, workers))
    for version in versions.values():
        version.close()
    return found


def figures(turns: list[Turn]) -> list[str]:
    wall, cpu = zip(*turns, strict=True)
    return [f"{value * 1e6:,.0f}" for value in (min(wall), median(wall), min(cpu), median(cpu))]


def ratio(ours: list[Turn], others: list[Turn]) -> str:
    """How many times as fast, by the medians of time."""
    return f"{median(wall for wall, _ in others) / median(wall for wall, _ in ours):.2f}"


def by_cpu(ours: list[Turn], others: list[Turn]) -> str:
    """The same by the best CPU time, where all work is done in one process."""
    return f"{min(cpu for _, cpu in others) / min(cpu for _, cpu in ours):.2f}"


def bars(found: dict[str, dict[tuple[int, str, int], list[Turn]]], own_cost: float) -> Table:
    table = Table("256 rows", "found", "by CPU", "target", box=None)
    now = found["now"]
    for collation in COLLATIONS:
        if "before" in found:
            pair = now[256, collation, 0], found["before"][256, collation, 0]
            table.add_row(f"{collation}, this version over the other", ratio(*pair), by_cpu(*pair), "1.4")
        two, one = now[256, collation, 2], now[256, collation, 1]
        table.add_row(f"{collation}, two processes over one", ratio(two, one), "", "1.3")
    before = f"below {OWN_COST_BEFORE} us"
    table.add_row("own cost of a micro-batch of 32 rows", "", f"{own_cost * 1e6:.0f} us", before)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", nargs="?", type=int, default=20, help="turns of each contender")
    parser.add_argument("--against", metavar="COMMIT", help="a version of Playhead to measure beside this one")
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    table = Table("us a micro-batch", "wall, best", "wall, median", "CPU here, best", "CPU here, median", box=None)
    with tempfile.TemporaryDirectory() as name, checked_out(options.against, Path(name) / "before") as before:
        path = Path(name) / "rows.jsonl"
        write_rows(path)
        found = measure(path, before, options.turns)
        for size in SIZES:
            table.add_row(f"{size} rows, read and decoded", *figures(bare_turns(path, size, options.turns)))
            for version, taken in found.items():
                other = "" if version == "now" else f", {options.against}"
                for (rows, collation, workers), turns in taken.items():
                    if rows == size:
                        what = f"{workers or 'no'} process{'' if workers == 1 else 'es'}"
                        table.add_row(f"{size} rows, {collation}, {what}{other}", *figures(turns))
        import bench_loading

        own_cost = min(bench_loading.own_cost(bench_loading.make_recipe(Path(name))) for _ in range(3))
    console = Console(width=120)
    console.print(table)
    console.print(bars(found, own_cost))


if __name__ == "__main__":
    main()
