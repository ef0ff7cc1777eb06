"""Heavy micro-batches: 20 MB of audio-sized arrays from tars to the training loop, beside a bare torch DataLoader.

- 32 rows of 160,000 float32 as `.npy` members of tars, shuffled, page cache warm: micro-batches a second of a torch
  DataLoader over a map-style dataset (seek, read, np.load, stack), of playhead.Loader and of playhead.torch.DataLoader.
- The same where each sample costs 2 ms of CPU in a map: pure Python for processes, numpy without the lock for threads.
- How far the memory of the process, of its largest worker, and shared memory rise, in micro-batches.
- Small rows of 225 bytes with their lengths checked, 256 to a micro-batch, without workers and with one and two.

All contenders take turns; figures are medians of the turns. Ratios are to the faster of two bare loops: torch's threads
wait for one another, and where other programs use the cores its default is many times slower than one thread. CPU time
a micro-batch is given for what works in one process; on a machine that is not idle only that is worth comparing.
`--json` prints them for machines, `--repeats N` says how many turns.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from playhead import Loader, Recipe, prepare_recipe
from playhead.torch import DataLoader

SIZE, WIDTH = 32, 160_000
SHARDS, ROWS_IN_SHARD = 4, 64
SMALL_ROWS, SMALL_SIZE, SMALL_TOKENS = 50_000, 256, 33
CPU_SECONDS = 0.002
LOOKAHEAD = 2
WORKERS = 2
UNTIMED = WORKERS * LOOKAHEAD + 1  # made while others had their turn

TORCH_THREADS = torch.get_num_threads()
SHARED = ("/memfd:", "/dev/shm/")  # noqa: S108 - looked for, not written to

Batches = Iterator[Any]


def busy_python(sample: dict[str, Any]) -> dict[str, Any]:
    """2 ms of pure Python: no other thread runs meanwhile."""
    until = time.thread_time() + CPU_SECONDS
    while time.thread_time() < until:
        pass
    return sample


def busy_numpy(sample: dict[str, Any]) -> dict[str, Any]:
    """2 ms of numpy, which lets other threads run."""
    until = time.thread_time() + CPU_SECONDS
    some = sample["npy"][:20_000].copy()
    while time.thread_time() < until:
        np.sin(some, out=some)
    return sample


def write_tars(folder: Path) -> None:
    noise = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in range(ROWS_IN_SHARD):
                content = io.BytesIO()
                np.save(content, noise.standard_normal(WIDTH, dtype=np.float32))
                info = tarfile.TarInfo(f"{shard}-{row}.npy")
                info.size = content.tell()
                content.seek(0)
                tar.addfile(info, content)


def heavy_recipe(folder: Path, **fields: Any) -> Recipe:
    source = {"name": "audio", "path": str(folder / "*.tar")}
    values = {"sources": [source], "batching": {"type": "fixed", "size": SIZE}, "sequence": "npy"}
    recipe = Recipe.parse({**values, "cache_dir": str(folder / "cache"), **fields})
    prepare_recipe(recipe)
    return recipe


def write_small_rows(folder: Path) -> None:
    noise = np.random.default_rng(0)
    with (folder / "small.jsonl").open("w") as file:
        for i in range(SMALL_ROWS):
            tokens = noise.integers(1000, 9999, SMALL_TOKENS).tolist()
            file.write(json.dumps({"id": f"{i:06}", "n": SMALL_TOKENS, "tokens": tokens}) + "\n")


def small_recipe(folder: Path) -> Recipe:
    source = {"name": "text", "path": str(folder / "small.jsonl"), "length": "n"}
    values = {"sources": [source], "batching": {"type": "fixed", "size": SMALL_SIZE}, "fields": ["id", "tokens"]}
    recipe = Recipe.parse({**values, "cache_dir": str(folder / "small-cache")})
    prepare_recipe(recipe)
    return recipe


class Bare(torch.utils.data.Dataset[Any]):
    """What one would write by hand: places of the members in memory, seek, read, np.load."""

    def __init__(self, folder: Path) -> None:
        self.places: list[tuple[str, int, int]] = []
        for path in sorted(folder.glob("*.tar")):
            with tarfile.open(path) as tar:
                self.places += [(str(path), member.offset_data, member.size) for member in tar.getmembers()]
        self.files: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Any:
        path, offset, size = self.places[index]
        if path not in self.files:
            self.files[path] = open(path, "rb")  # noqa: SIM115, PTH123 - kept open, as one would by hand
        self.files[path].seek(offset)
        return np.load(io.BytesIO(self.files[path].read(size)))


def bare(folder: Path, workers: int, threads: int = TORCH_THREADS) -> Batches:
    dataset = Bare(folder)
    sampler = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=1 << 30)
    batches = iter(torch.utils.data.DataLoader(dataset, batch_size=SIZE, sampler=sampler, num_workers=workers))
    while True:
        torch.set_num_threads(threads)
        yield next(batches)


def ours(recipe: Recipe, **options: Any) -> Batches:
    return iter(Loader(recipe, rank=0, world_size=1, lookahead=LOOKAHEAD, **options))


def ours_for_torch(recipe: Recipe, workers: int) -> Batches:
    return iter(DataLoader(recipe, rank=0, world_size=1, num_workers=workers, prefetch_factor=LOOKAHEAD))


def turn(batches: Batches, num: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU of this process, for a micro-batch; what was made ahead does not count."""
    for _ in islice(batches, UNTIMED):
        pass
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for _ in islice(batches, num):
        pass
    return (time.perf_counter() - begin) / num, (time.process_time() - cpu_begin) / num


def medians(contenders: dict[str, Callable[[], Batches]], num: int, repeats: int) -> dict[str, dict[str, float]]:
    """Micro-batches a second, and CPU milliseconds for one, of each: medians of turns that all take in order."""
    opened = {name: make() for name, make in contenders.items()}
    turns = [{name: turn(batches, num) for name, batches in opened.items()} for _ in range(repeats)]
    opened.clear()
    gc.collect()
    found = {}
    for name in contenders:
        wall, cpu = (statistics.median(seconds[name][i] for seconds in turns) for i in range(2))
        found[name] = {"per_second": 1 / wall, "cpu_ms": cpu * 1000}
    return found


def children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def status(pid: int | str, name: str) -> int:
    """A figure of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def shared_bytes() -> int:
    """The bytes of shared memory that this process and its children have open or mapped: memfds, and /dev/shm."""
    segments: dict[str, int] = {}
    for pid in (os.getpid(), *children()):
        try:
            opened = [*Path(f"/proc/{pid}/fd").iterdir()]
            mapped = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        except OSError:
            continue  # the process has ended meanwhile
        for place in opened:
            with suppress(OSError):
                if str(place.readlink()).startswith(SHARED):
                    found = place.stat()
                    segments[f"{found.st_ino}"] = found.st_blocks * 512
        for addresses, _, _, _, inode, *path in mapped:
            if path and path[0].startswith(SHARED):
                first, end = (int(address, 16) for address in addresses.split("-"))
                segments[inode] = max(segments.get(inode, 0), end - first)
    return sum(segments.values())


def memory(folder: Path, name: str, idle_worker: int) -> tuple[float, ...]:
    """How far this process, its largest worker and shared memory rise, in micro-batches; called in a fresh process.

    `idle_worker` is what a worker that makes small batches has at its peak.
    """
    make = heavy_contenders(folder)[name]
    others = {*children()}
    next(ours(small_recipe(folder)))  # what is imported and compiled on first use does not count
    before, shared_before = status("self", "VmRSS"), shared_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    batches, shared = make(), 0
    for _ in range(40):
        batch = next(batches)
        shared = max(shared, shared_bytes() - shared_before)
    fields = (batch,) if isinstance(batch, torch.Tensor) else batch.data.values()
    size = sum(value.nbytes for value in fields if hasattr(value, "nbytes"))
    peak = status("self", "VmHWM") - before
    workers = [status(pid, "VmHWM") - idle_worker for pid in children() if pid not in others]
    del batches  # torch's workers must end before the process does
    gc.collect()
    return peak / size, max((peak for peak in workers if peak > 0), default=0) / size, shared / size


def small_worker_peak(folder: Path) -> int:
    batches = ours(small_recipe(folder), workers=1)
    next(batches)
    return max(status(pid, "VmHWM") for pid in children())


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


def heavy_contenders(folder: Path) -> dict[str, Callable[[], Batches]]:
    recipe = heavy_recipe(folder)
    without = heavy_recipe(folder, masks="padded")
    return {
        "bare torch, 0 workers": lambda: bare(folder, 0),
        "bare torch, 0 workers, 1 thread": lambda: bare(folder, 0, 1),
        "bare torch, 2 workers": lambda: bare(folder, WORKERS),
        "Loader, 0 workers": lambda: ours(recipe),
        "Loader, 0 workers, masks: padded": lambda: ours(without),
        "Loader, 2 threads": lambda: ours(recipe, workers=WORKERS, worker_kind="thread"),
        "Loader, 2 processes": lambda: ours(recipe, workers=WORKERS),
        "torch.DataLoader, 2 workers": lambda: ours_for_torch(recipe, WORKERS),
    }


def costly_contenders(folder: Path) -> dict[str, Callable[[], Batches]]:
    python = heavy_recipe(folder, map="bench_heavy:busy_python")
    array = heavy_recipe(folder, map="bench_heavy:busy_numpy")
    return {
        "2 ms of Python, 0 workers": lambda: ours(python),
        "2 ms of Python, 2 processes": lambda: ours(python, workers=WORKERS),
        "2 ms of numpy, 0 workers": lambda: ours(array),
        "2 ms of numpy, 2 threads": lambda: ours(array, workers=WORKERS, worker_kind="thread"),
    }


def small_contenders(folder: Path) -> dict[str, Callable[[], Batches]]:
    recipe = small_recipe(folder)
    return {
        "small rows, 0 workers": lambda: ours(recipe),
        "small rows, 1 process": lambda: ours(recipe, workers=1),
        "small rows, 2 processes": lambda: ours(recipe, workers=WORKERS),
    }


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    write_tars(folder)
    write_small_rows(folder)
    rates = medians(heavy_contenders(folder), 20, repeats)
    rates |= medians(costly_contenders(folder), 4, max(3, repeats // 3))
    rates |= medians(small_contenders(folder), 200, repeats)
    idle_worker = in_fresh_process(small_worker_peak, folder)
    rises = {name: in_fresh_process(memory, folder, name, idle_worker) for name in heavy_contenders(folder)}
    return {"rates": rates, "memory_in_micro_batches": rises}


BARE = ("bare torch, 0 workers", "bare torch, 0 workers, 1 thread")
TARGETS: tuple[tuple[str, tuple[str, ...], float | None], ...] = (
    ("Loader, 0 workers", BARE, 2.5),
    ("Loader, 0 workers, masks: padded", BARE, None),
    ("Loader, 2 processes", ("bare torch, 2 workers",), 2.5),
    ("torch.DataLoader, 2 workers", ("bare torch, 2 workers",), 2.0),
    ("Loader, 2 processes", ("Loader, 0 workers",), 0.6),
    ("Loader, 2 threads", ("Loader, 0 workers",), None),
    ("2 ms of Python, 2 processes", ("2 ms of Python, 0 workers",), 1.7),
    ("2 ms of numpy, 2 threads", ("2 ms of numpy, 0 workers",), None),
    ("small rows, 2 processes", ("small rows, 1 process",), 1.3),
)

LOOKAHEADS = {
    "Loader, 0 workers": 0,
    "Loader, 0 workers, masks: padded": 0,
    "Loader, 2 threads": WORKERS * LOOKAHEAD,
    "Loader, 2 processes": WORKERS * LOOKAHEAD,
    "torch.DataLoader, 2 workers": WORKERS * LOOKAHEAD,
}


def ratios(rates: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """What was found beside what is wanted. By CPU time too, where all work is done in this process."""
    found = []
    for name, others, target in TARGETS:
        fastest = max(others, key=lambda other: rates[other]["per_second"])
        ratio = {"of": name, "to": fastest, "found": rates[name]["per_second"] / rates[fastest]["per_second"]}
        if others == BARE:
            ratio["by_cpu"] = min(rates[other]["cpu_ms"] for other in BARE) / rates[name]["cpu_ms"]
        found.append({**ratio, "target": target})
    return found


def with_bars(name: str, rises: tuple[float, ...]) -> list[str]:
    """How far memory rose, and how far it may: two micro-batches more than the look-ahead, shared memory as many."""
    if name not in LOOKAHEADS:
        return [f"{rise:.1f}" for rise in rises]
    bars = (LOOKAHEADS[name] + 2, LOOKAHEADS[name] + 2, LOOKAHEADS[name] if "thread" not in name else 0)
    return [f"{rise:.1f} ({bar})" for rise, bar in zip(rises, bars, strict=True)]


def show(found: dict[str, Any], console: Console) -> None:
    risen = ("process (at most)", "largest worker (at most)", "shared memory (at most)")
    table = Table("micro-batches", "a second", "CPU ms each, this process", *risen, box=None)
    for name, rate in found["rates"].items():
        rises = with_bars(name, found["memory_in_micro_batches"].get(name, ()))
        table.add_row(name, f"{rate['per_second']:,.1f}", f"{rate['cpu_ms']:.2f}", *rises)
    console.print(table)
    table = Table("ratio", "found", "by CPU", "target", box=None)
    for ratio in found["ratios"]:
        by_cpu = f"{ratio['by_cpu']:.2f}" if "by_cpu" in ratio else ""
        target = "" if ratio["target"] is None else f"{ratio['target']}"
        table.add_row(f"{ratio['of']} / {ratio['to']}", f"{ratio['found']:.2f}", by_cpu, target)
    console.print(table)
    if found["load_before"] > 0.5:
        console.print(
            f"The machine was not idle before (load {found['load_before']:.1f}): only CPU times can be compared."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each contender")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        found = {"load_before": load_before, **measure(Path(name), options.repeats)}
    found["ratios"] = ratios(found["rates"])
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found, Console(width=150))


if __name__ == "__main__":
    main()
