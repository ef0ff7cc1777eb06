"""An index of 100 million rows with a selection: bytes a row, time and memory to open, look-ups a second.

python benchmarks/bench_index_open.py [millions of rows]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from playhead.formats.contract import Chunk
from playhead.formats.rows import Shard
from playhead.formats.schema import LENGTHS, Track
from playhead.index.build import IndexBuilder, IndexShape
from playhead.index.layout import ShardEntry, files_now, layout_of
from playhead.index.opened import open_index
from playhead.index.sweep import write_selection
from playhead.index.table import Table, open_table
from playhead.recipe.tree import leaves
from playhead.recipe.values import Fixed, Length, Recipe, Source
from playhead.store import all_files

ROWS_PER_SHARD = 1_000_000
TRACK = Track("jsonl")


def make(folder: Path, num_shards: int) -> Recipe:
    """The index that `prepare` would have built from shards we need not have."""
    for i in range(num_shards):
        (folder / f"{i:05d}.jsonl").touch()
    recipe = Recipe(
        sources=[Source(name="big", path=[str(folder / "*.jsonl")], length=Length(field="n"))],
        batching=Fixed(size=8, max_length=4000, overlong="drop"),
        cache_dir=str(folder / "cache"),
    )
    layout = layout_of(leaves(recipe)[0], recipe)
    shards = [Shard((("jsonl", str(folder / f"{i:05d}.jsonl")),)) for i in range(num_shards)]
    entries = tuple(ShardEntry(files_now(shard, all_files()), ROWS_PER_SHARD) for shard in shards)
    shape = IndexShape(entries, ("jsonl",), (TRACK,))
    num_rows = num_shards * ROWS_PER_SHARD
    sizes = {LENGTHS: num_rows, TRACK.array("offsets"): num_rows + num_shards}
    builder = IndexBuilder(layout.directory, layout, shape, sizes, 1 << 28)
    for i in range(num_shards):
        builder.add(chunk_of(i))
    builder.finish()
    index = open_index(layout.directory)
    assert index is not None
    write_selection(layout, index)
    return recipe


def chunk_of(shard: int) -> Chunk:
    rng = np.random.default_rng(shard)
    lengths = np.minimum(rng.lognormal(6, 1, ROWS_PER_SHARD), 2**20).astype(np.uint32)
    offsets = np.arange(ROWS_PER_SHARD + 1, dtype=np.uint64) * np.uint64(200)
    return Chunk(ROWS_PER_SHARD, {TRACK.array("offsets"): offsets, LENGTHS: lengths})


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def look_ups(table: Table, num_rows: int) -> float:
    rows = np.random.default_rng(1).integers(0, num_rows, 1_000_000)
    table.lengths_of(rows)
    start = time.perf_counter()
    table.lengths_of(rows)
    return rows.size / (time.perf_counter() - start)


def main() -> None:
    num_shards = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        recipe = make(Path(folder), num_shards)
        print(f"built in {time.perf_counter() - start:.1f} s")
        (leaf,) = leaves(recipe)
        open_table(leaf, recipe)
        before, start = resident_mb(), time.perf_counter()
        table = open_table(leaf, recipe)
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in table.index.directory.rglob("*") if path.is_file())
        raw = table.index.meta.num_rows
        print(f"rows            {raw:,}, selected {table.num_rows:,}")
        print(f"bytes per row   {size / raw:.3f} (formula: 8 offsets + 4 length + 0.2 = 12.2)")
        print(f"open            {seconds * 1000:.1f} ms (target: under 500)")
        print(f"memory growth   {resident_mb() - before:.2f} MB")
        print(f"look-ups        {look_ups(table, table.num_rows) / 1e6:.1f} M rows/s over all rows")
        print(f"                {look_ups(table, 1_000_000) / 1e6:.1f} M rows/s within 1 M rows (target: 4)")


if __name__ == "__main__":
    main()
