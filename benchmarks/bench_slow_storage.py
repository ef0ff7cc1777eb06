"""A training loop on slow storage: Arrow shards behind 200 MB/s and 50 ms of latency, 100 ms and 8 MB a step.

- playhead: `shuffle: shards` with a shard cache that has room for two and a half groups of shards, and without a cache.
- grain: the pipeline that reads such shards with Grain: every shard loaded when it is its turn (`ArrowShard`),
  `InterleaveIterDataset` over 8 of them, `WindowShuffleIterDataset`, `mp_prefetch` with as many workers.
- lru: the bytes that a plain LRU cache of whole shards, of the same size, would have fetched for the same steps.

Playhead makes some passes over the data, Grain one. Printed are the share of its time that the loop waited after the
first step (and how much of that for batches that were not made yet, for which storage is the reason; the rest is the
handing over of batches that were ready, while proxy, server, filler, workers and loop share the cores), the same from
step 50 on, the steps that were waited for (a hundredth of a second or more) and the longest wait, the time to the first
step, the bytes that the storage sent beside those of the shards, and the mixing score: how far apart rows that are
neighbours in their shard come, where 1 is a uniform shuffle. nginx serves the shards on loopback; a proxy of our own
(tests/slow_proxy.py) is the slow network.

Shards of 700 MB, of which 64 are 8 files under several names (too few bytes for a disk, too many for a score):

    bench_slow_storage.py --shards 64 --distinct 8 --rows 2670 --epochs 1 --steps 900 --room 2.1 --without direct,grain
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import playhead
from playhead.inspect.mixing import mixing_score
from playhead.prepare import prepare
from playhead.read.cache_filler.streams import CachedStream, StreamKey
from playhead.recipe.storage import stored_files
from playhead.store.shard_cache.counters import sum_counters
from playhead.store.shard_cache.directory import CacheDirectory, Unit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from slow_proxy import Network, SlowProxy, slow_proxy
from store_servers import has, nginx

ROW_BYTES = 256 << 10
ROWS_PER_STEP = 32  # 8 MB
BATCH_ROWS = 50
STEP_SECONDS = 0.1
GROUP = 8
SETTLED = 50  # steps, after which the first group of shards has mostly come
WAITED_SECONDS = 0.01
console = Console(width=120)


@dataclass(frozen=True)
class Sizes:
    num_shards: int
    rows: int
    epochs: int
    workers: int
    most_steps: int
    num_distinct: int

    @property
    def num_steps(self) -> int:
        return min(self.most_steps, self.epochs * self.num_shards * self.rows // ROWS_PER_STEP)


@dataclass(frozen=True)
class Run:
    name: str
    first_seconds: float
    waited: float
    late: float | None  # of `waited`: for batches that were not made yet
    settled: float  # the share that was waited from a later step on
    steps_waited: int
    num_steps: int
    longest: float
    sent: float  # bytes that the storage sent, over those of the rows delivered
    order: list[tuple[int, int]]


def write_shards(folder: Path, sizes: Sizes) -> None:
    """Streams of record batches, as Hugging Face keeps them in its caches; some may be links to others."""
    schema = pa.schema([("shard", pa.int32()), ("row", pa.int32()), ("tokens", pa.list_(pa.int32()))])
    noise = np.random.default_rng(0)
    for shard in range(sizes.num_distinct):
        with pa.OSFile(str(folder / f"data-{shard:05}.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
            for first in range(0, sizes.rows, BATCH_ROWS):
                rows = np.arange(first, min(first + BATCH_ROWS, sizes.rows), dtype=np.int32)
                tokens = noise.integers(0, 1 << 15, (len(rows), ROW_BYTES // 4), dtype=np.int32)
                offsets = np.arange(len(rows) + 1, dtype=np.int32) * tokens.shape[1]
                lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens.reshape(-1)))
                shards = pa.array(np.full(len(rows), shard, np.int32))
                stream.write_batch(pa.record_batch([shards, pa.array(rows), lists], schema=schema))
    for shard in range(sizes.num_distinct, sizes.num_shards):
        (folder / f"data-{shard:05}.arrow").hardlink_to(folder / f"data-{shard % sizes.num_distinct:05}.arrow")


def touch_memory(folder: Path, num_bytes: int) -> None:
    """Let the system have so much page cache, or half of its memory: a virtual machine is given memory when it is
    first used, slowly.
    """
    num_bytes = min(num_bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    scratch = folder / "scratch"
    with scratch.open("wb") as file:
        for _ in range(0, num_bytes, 1 << 23):
            file.write(bytes(1 << 23))
    scratch.unlink()


def loop(name: str, batches: Iterable[tuple[Any, Any]], proxy: SlowProxy, num_steps: int, made: list[float]) -> Run:
    """A training loop: it takes a batch of (shard, row) pairs, and then 100 ms.

    `made` is when batches were made, where that is known: it grows as they are delivered.
    """
    before = proxy.counts()["bytes"]
    found = iter(batches)
    began = time.perf_counter()
    waits: list[float] = []
    late: list[float] = []
    order: list[tuple[int, int]] = []
    settled = began
    for step in range(num_steps):
        if step == SETTLED:
            settled = time.perf_counter()
        asked = time.perf_counter()
        batch = next(found, None)
        if batch is None:  # Grain makes one pass
            break
        shards, rows = batch
        waits.append(time.perf_counter() - asked)
        if made:
            late.append(max(0.0, min(waits[-1], waits[-1] - (time.monotonic() - made[-1]))))
        order += zip(np.asarray(shards).tolist(), np.asarray(rows).tolist(), strict=True)
        time.sleep(STEP_SECONDS)
    ended = time.perf_counter()
    total = ended - began - waits[0] - STEP_SECONDS
    sent = (proxy.counts()["bytes"] - before) / (len(order) * ROW_BYTES)
    share = sum(late[1:]) / total if made else None
    later = sum(waits[SETTLED:]) / (ended - settled)
    steps_waited = sum(wait >= WAITED_SECONDS for wait in waits[1:])
    share_waited = sum(waits[1:]) / total
    return Run(name, waits[0], share_waited, share, later, steps_waited, len(waits), max(waits[1:]), sent, order)


def recipe_of(proxy: SlowProxy, work: Path, sizes: Sizes, cache_bytes: int | None) -> playhead.Recipe:
    cache = {} if cache_bytes is None else {"shard_cache": {"dir": str(work / "cache"), "max_bytes": cache_bytes}}
    source = {
        "name": "tokens",
        "format": "arrow",
        "path": [f"{proxy.address}/data-{shard:05}.arrow" for shard in range(sizes.num_shards)],
        "shuffle": "shards",
        "shuffle_group": GROUP,
    }
    values = {
        "seed": 1,
        "lanes": 1,
        "batching": {"type": "fixed", "size": ROWS_PER_STEP},
        "epochs": sizes.epochs,
        "sources": [source],
        "cache_dir": str(work / "indexes"),
        "dtypes": {"tokens": "int32"},
        **cache,
    }
    return playhead.Recipe.parse(values, work)


def delivered(loader: Any) -> Iterator[tuple[Any, Any]]:
    for batch in loader:
        yield batch["shard"], batch["row"]


def run_playhead(name: str, recipe: playhead.Recipe, proxy: SlowProxy, sizes: Sizes) -> Run:
    with playhead.Loader(recipe, rank=0, world_size=1, workers=sizes.workers) as loader:
        made: list[float] = []
        loader.watch(lambda timing, _asked, _given: made.append(timing.ended))
        return loop(name, delivered(loader), proxy, sizes.num_steps, made)


def run_grain(proxy: SlowProxy, sizes: Sizes) -> Run:
    import grain
    from grain import experimental

    from grain_arrow import ArrowShard

    shards = [ArrowShard(f"{proxy.address}/data-{shard:05}.arrow") for shard in range(sizes.num_shards)]
    mixed = experimental.InterleaveIterDataset(shards, cycle_length=GROUP)
    shuffled = experimental.WindowShuffleIterDataset(mixed, window_size=GROUP * ROWS_PER_STEP, seed=1)
    batched = shuffled.batch(ROWS_PER_STEP, batch_fn=_stacked)
    ahead = batched.mp_prefetch(grain.MultiprocessingOptions(sizes.workers, per_worker_buffer_size=2))
    return loop("grain", ((batch["shard"], batch["row"]) for batch in ahead), proxy, sizes.num_steps, [])


def _stacked(rows: Any) -> dict[str, Any]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def lru_bytes(recipe: playhead.Recipe, num_steps: int, max_bytes: int) -> int:
    """What a cache that fetches whole shards on demand, and evicts the least recently used, fetches for some steps."""
    stream = CachedStream(recipe, StreamKey("", None, 1), stored_files(recipe))
    held: OrderedDict[Unit, None] = OrderedDict()
    fetched = size = 0
    for step, units in stream.steps(tuple(stream.start().to_record()), [0]):
        if step == num_steps:
            break
        for unit in units:
            if unit in held:
                held.move_to_end(unit)
                continue
            fetched += unit.size
            held[unit] = None
            size += unit.size
            while size > max_bytes:
                size -= held.popitem(last=False)[0].size
    return fetched


def mixing(order: list[tuple[int, int]], sizes: Sizes) -> float | None:
    """The mixing score of the first epoch of a delivered order; None of a part of it, or of shards that are alike."""
    num_rows = sizes.num_shards * sizes.rows
    if sizes.num_distinct < sizes.num_shards or len(order) < num_rows // ROWS_PER_STEP * ROWS_PER_STEP:
        return None
    places = {row: place for place, row in enumerate(order[:num_rows])}
    pairs = [(place, places[shard, row + 1]) for (shard, row), place in places.items() if (shard, row + 1) in places]
    first, second = np.array(pairs, np.float64).T
    return mixing_score(first, second, num_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--rows", type=int, default=280, help="rows of 256 KiB in a shard")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--room", type=float, default=2.5, help="groups of shards that the cache has room for")
    parser.add_argument("--steps", type=int, default=1 << 30, help="end after so many")
    parser.add_argument("--distinct", type=int, default=0, help="so many different shards; the others are links")
    parser.add_argument("--without", default="", help="runs to leave out, separated by commas")
    given = parser.parse_args()
    if not has("nginx"):
        console.print("nginx is not installed")
        return
    distinct = given.distinct or given.shards
    sizes = Sizes(given.shards, given.rows, given.epochs, given.workers, given.steps, distinct)
    cache_bytes = int(given.room * GROUP * sizes.rows * (ROW_BYTES + 1024))
    with tempfile.TemporaryDirectory() as folder:
        data, work = Path(folder, "data"), Path(folder, "work")
        data.mkdir()
        work.mkdir()
        write_shards(data, sizes)
        touch_memory(work, 2 * cache_bytes)
        with nginx(data, work) as port, slow_proxy(port, Network()) as proxy:
            recipe = recipe_of(proxy, work, sizes, cache_bytes)
            prepare(recipe)
            proxy.set(latency_seconds=0.05, bytes_per_second=200e6)
            left_out = given.without.split(",")
            if find_spec("grain") is None:
                console.print("Grain is not installed: pip install grain==0.2.18")
                left_out.append("grain")
            runs: list[Run] = []
            if "cache" not in left_out:
                runs.append(run_playhead("playhead, shard cache", recipe, proxy, sizes))
                counts = sum_counters(CacheDirectory(work / "cache"))
            if "direct" not in left_out:
                runs.append(run_playhead("playhead, no cache", recipe_of(proxy, work, sizes, None), proxy, sizes))
            if "grain" not in left_out:
                runs.append(run_grain(proxy, sizes))
            report(runs, sizes)
            if "cache" not in left_out and sizes.num_steps < sizes.most_steps:  # else some was fetched for later steps
                fetched = counts.copied_bytes + counts.direct_bytes
                lru = lru_bytes(recipe, sizes.num_steps, cache_bytes)
                console.print(
                    f"for the same steps, with {cache_bytes / 1e9:.2f} GB: shard cache {counts.copied_bytes / 1e9:.2f} "
                    f"GB copied and {counts.direct_bytes / 1e9:.2f} GB read past it, {fetched / lru:.2f} of what a "
                    f"plain LRU fetches ({lru / 1e9:.2f} GB)"
                )


def report(runs: list[Run], sizes: Sizes) -> None:
    table = Table(
        title=f"{sizes.num_shards} shards of {sizes.rows * ROW_BYTES / 1e6:.0f} MB, {sizes.num_steps} steps of "
        f"{ROWS_PER_STEP * ROW_BYTES / 1e6:.1f} MB, {sizes.workers} workers"
    )
    late, after = "not made yet", f"after step {SETTLED}"
    columns = ("", "first step", "waited", late, after, "steps waited", "longest", "sent / delivered", "mixing score")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for run in runs:
        score = mixing(run.order, sizes)
        table.add_row(
            run.name,
            f"{run.first_seconds:.2f} s",
            f"{100 * run.waited:.2f} %",
            "" if run.late is None else f"{100 * run.late:.2f} %",
            f"{100 * run.settled:.2f} %",
            f"{run.steps_waited} of {run.num_steps}",
            f"{run.longest:.2f} s",
            f"{run.sent:.2f}",
            "" if score is None else f"{score:.3f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
