"""Streams that are read through a shard cache: their data, where it is served, and what is delivered of them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from columnar_data import parquet
from columnar_data import stream as arrow_stream
from deliveries import Seen, seen
from loopback import Loopback, serving
from playhead import Loader, Recipe
from playhead.inspect.cache import cache_stat
from playhead.prepare import prepare

NUM_SHARDS = 12
ROWS_IN_SHARD = 48
TEXT_BYTES = 3000
KINDS = ("jsonl", "jsonl.gz", "arrow", "parquet")


def write_shards(folder: Path, kind: str = "jsonl", num_shards: int = NUM_SHARDS, rows: int = ROWS_IN_SHARD) -> None:
    """Shards of about 150 kB that no compression makes smaller."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)  # noqa: S311 - no secret
    for shard in range(num_shards):
        texts = [chance.randbytes(TEXT_BYTES // 2).hex() for _ in range(rows)]
        tokens = [[shard, row, *range(row % 5)] for row in range(rows)]
        path = folder / f"{shard:03}.{kind}"
        if kind in ("arrow", "parquet"):
            table = pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32())), "text": texts})
            path.write_bytes((parquet if kind == "parquet" else arrow_stream)(table, 8, compression=None))
            continue
        lines = [json.dumps({"tokens": numbers, "text": text}) for numbers, text in zip(tokens, texts, strict=True)]
        data = "".join(line + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(data, 1, mtime=0) if kind.endswith(".gz") else data)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def served_folder(folder: Path) -> Iterator[Loopback]:
    """A web server with the files of a folder."""
    with serving({f"/data/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}) as server:
        yield server


def recipe_of(
    where: str | Path, folder: Path, data: Path, cache: dict[str, Any] | None = None, **fields: Any
) -> Recipe:
    """A prepared recipe over the files of `data`, read at `where`; its indexes are in `folder`."""
    source: dict[str, Any] = {"name": "s", "path": [f"{where}/{path.name}" for path in sorted(data.iterdir())]}
    source |= {name: fields.pop(name) for name in ("shuffle", "shuffle_group", "shuffle_unit") if name in fields}
    defaults = {"batching": {"type": "fixed", "size": 4}, "lanes": 4, "epochs": 1, "seed": 5}
    values = {"sources": [source], **defaults, **fields}
    if cache is not None:
        values["shard_cache"] = {"dir": str(folder / "copies"), "max_bytes": 1 << 30, **cache}
    recipe = Recipe.parse({**values, "cache_dir": str(folder / "indexes")}, folder)
    prepare(recipe, workers=1)
    return recipe


def by_shards(group: int = 2) -> dict[str, Any]:
    return {"shuffle": "shards", "shuffle_group": group}


def delivered(recipe: Recipe, num_batches: int | None = None, **how: Any) -> tuple[list[Seen], int]:
    """What a loader delivers, and the receipt after it."""
    with Loader(recipe, **how) as loader:
        found = []
        for batch in loader:
            found.append(seen(batch))
            if len(found) == num_batches:
                break
        return found, receipt_of(loader)


def receipt_of(loader: Any) -> Any:
    return loader.state_dict()["receipt"]


def counts_of(recipe: Recipe) -> dict[str, int]:
    assert recipe.shard_cache is not None
    return cache_stat(recipe.shard_cache.dir).counts


def left_in(recipe: Recipe) -> list[Path]:
    """What a cache should not hold when nobody uses it: parts, temporary files, ranks."""
    assert recipe.shard_cache is not None
    root = Path(recipe.shard_cache.dir)
    found = [path for path in root.rglob("*") if path.name.endswith((".part", ".tmp")) or path.parent.name == "ranks"]
    return sorted(found)


def stat_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What would show that a file was written to."""
    found = {path.name: path.stat() for path in sorted(folder.iterdir())}
    return {name: (about.st_size, about.st_mtime_ns, about.st_mode) for name, about in found.items()}
