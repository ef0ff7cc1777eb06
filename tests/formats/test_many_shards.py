"""Sources of real sizes, scaled down: hundreds of Arrow files, and files of many times the memory that is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from columnar_data import check_ranks, recipe_of, stream
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe

NUM_SHARDS, ROWS = 500, 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(NUM_SHARDS):
        numbers = range(shard * ROWS, (shard + 1) * ROWS)
        table = pa.table({"n": [3] * ROWS, "id": numbers, "tokens": [[i, i + 1, i + 2] for i in numbers]})
        (folder / f"part-{shard:05}.arrow").write_bytes(stream(table, 2))
    return folder


@pytest.mark.full
@pytest.mark.parametrize("shuffle", [{"shuffle": "global"}, {"shuffle": "shards", "shuffle_group": 16}])
def test_500_arrow_shards_are_indexed_dealt_to_ranks_and_resumed(shards: Path, shuffle: dict[str, object]) -> None:
    source = {"path": "part-{00000..00499}.arrow", "length": "n", "ids": "id", **shuffle}
    fields = {
        "lanes": 20,
        "sequence": "tokens",
        "collate": "pad",
        "epochs": 1,
        "batching": {"type": "fixed", "size": 8},
    }
    recipe = recipe_of(shards, source, **fields)
    report = prepare(recipe, workers=2, processes=True)
    assert (report.sources[0].num_shards, report.sources[0].num_rows) == (NUM_SHARDS, NUM_SHARDS * ROWS)
    assert prepare(recipe).sources[0].scanned_shards == 0
    table = open_table(leaves(recipe)[0], recipe)
    assert table.find("1733").tolist() == [1733]
    assert "part-00433.arrow" in table.place(1733)
    check_ranks(recipe, NUM_SHARDS * ROWS, workers=2)


PEAKS = """
import json, re
from pathlib import Path
from playhead import Loader, Recipe
from playhead.formats import arrow

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

arrow._KEPT_BYTES = 2 << 20
loader = Loader(Recipe.parse(json.loads(Path("recipe.json").read_text())))
batches = iter(loader)
next(batches)
print(peak())
for batch in batches:
    pass
print(peak())
loader.next_round()
for batch in loader:
    pass
print(peak())
"""


def peaks(folder: Path, recipe: Recipe) -> list[int]:
    """The most memory in kB that a process had after one batch, and after each of two passes over all rows."""
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    done = subprocess.run([sys.executable, "-c", PEAKS], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


BLOCKS = {"shuffle": "shards", "shuffle_unit": "block", "shuffle_group": 2}


@pytest.mark.parametrize("kind", ["parquet", "arrow", "compressed arrow"])
def test_memory_does_not_grow_with_what_is_read(tmp_path: Path, kind: str) -> None:
    """48 blocks of 2 MB, of which a worker keeps 4 at most."""
    noise, schema = np.random.default_rng(0), pa.schema({"n": pa.int64(), "blob": pa.binary()})
    tables = [pa.table({"n": range(64), "blob": [noise.bytes(1 << 15) for _ in range(64)]}, schema) for _ in range(48)]
    if kind == "parquet":
        with pq.ParquetWriter(tmp_path / "a.parquet", schema, compression="none") as writer:
            for table in tables:
                writer.write_table(table)
    else:
        how = pa.ipc.IpcWriteOptions(compression="lz4" if kind == "compressed arrow" else None)
        with pa.ipc.new_stream(tmp_path / "a.arrow", schema, options=how) as writer:
            for table in tables:
                writer.write_table(table)
    shuffle = {"shuffle": "global"} if kind == "arrow" else BLOCKS
    source = {"path": "a.parquet" if kind == "parquet" else "a.arrow", **shuffle}
    recipe = recipe_of(tmp_path, source, batching={"type": "fixed", "size": 8}, epochs=1)
    prepare(recipe)
    first, once, twice = peaks(tmp_path, recipe)
    assert once - first < 40_000  # of 96 MB
    assert twice - once < 8_000
