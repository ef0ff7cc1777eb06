"""Training from files on a mounted file server: they are fetched ahead, and the stream is that of local files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from deliveries import seen
from playhead import Loader, Recipe
from playhead.prepare import prepare
from slow_mount import mounted
from small_data import write_jsonl
from store_servers import has


@pytest.mark.full
@pytest.mark.skipif(
    not has("fusermount3") and "CI" not in os.environ, reason="fuse3 is not installed"
)  # with CI, it is an error
@pytest.mark.parametrize("cached", [False, True])
def test_batches_from_a_mounted_server_are_fetched_ahead_and_are_those_of_local_files(
    tmp_path: Path, cached: bool
) -> None:
    (tmp_path / "data").mkdir()
    noise = np.random.default_rng(0)
    for shard in range(4):
        rows = [{"id": f"{shard}-{i}", "tokens": noise.integers(0, 10_000, 500).tolist()} for i in range(60)]
        write_jsonl(tmp_path / "data" / f"part-{shard}.jsonl", rows)

    def recipe_of(folder: str, cache: dict[str, object]) -> Recipe:
        source = {"name": "web", "path": f"{folder}/part-*.jsonl", "shuffle": "shards", "shuffle_group": 2}
        values = {"seed": 1, "lanes": 1, "epochs": 1, "batching": {"type": "fixed", "size": 8}, "sources": [source]}
        return Recipe.parse({**values, "cache_dir": f"index-{folder}", **cache}, tmp_path)

    near = recipe_of("data", {})
    cache = {"shard_cache": {"dir": "cache", "max_bytes": 1 << 30}} if cached else {}
    far = recipe_of("mount", cache)
    with mounted(tmp_path / "data", tmp_path / "mount", 0.02):
        for recipe in (near, far):
            prepare(recipe, workers=1)
        with Loader(near, rank=0, world_size=1, workers=2) as loader:
            expected = [seen(batch) for batch in loader]
            assert loader.stats().total.ahead == 0
        with Loader(far, rank=0, world_size=1, workers=2) as loader:
            assert [seen(batch) for batch in loader] == expected
            assert loader.stats().total.ahead > 0
            if cached:
                assert loader.stats().total.cache_bytes > 0
