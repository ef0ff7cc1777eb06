"""A recipe over an object store, indexed and read by its URLs alone, from a server on loopback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loopback import serving
from playhead import Loader, Recipe, StoreError
from playhead.prepare import prepare
from playhead.store import MEMORY


def test_a_recipe_over_a_bucket_is_indexed_and_read_and_a_changed_object_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"tokens": [i, i + 1], "n": 2} for i in range(12)]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    objects = {"/bucket/data/0.jsonl": b"".join(lines[:7]), "/bucket/data/1.jsonl": b"".join(lines[7:])}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving(objects) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        source = {"name": "a", "path": "s3://bucket/data/*.jsonl", "length": "n", "shuffle": "none"}
        values = {"sources": [source], "batching": {"type": "fixed", "size": 3}, "epochs": 1, "lanes": 1}
        recipe = Recipe.parse({**values, "cache_dir": "cache"}, base_dir=tmp_path)
        (report,) = prepare(recipe).sources
        assert (report.num_shards, report.num_rows) == (2, 12)
        assert not prepare(recipe).changed
        found = [row for batch in Loader(recipe) for row in batch["tokens"].tolist()]
        assert found == [row["tokens"] for row in rows]
        server.objects["/bucket/data/1.jsonl"] += b"\n"
        with pytest.raises(StoreError, match=r"s3://bucket/data/1\.jsonl: changed since it was indexed"):
            list(Loader(recipe))
        assert prepare(recipe).sources[0].scanned_shards == 1


@pytest.mark.parametrize("length", ["n", {"measure": True}])
def test_files_in_memory_are_indexed_in_this_process_however_large(tmp_path: Path, length: object) -> None:
    """Other processes would not find them."""
    lines = "".join(json.dumps({"tokens": [i] * 2_000, "n": 2_000}) + "\n" for i in range(1_700)).encode()
    for i in range(2):
        MEMORY.write(f"memory://{tmp_path.name}/{i}.jsonl", lines)
    source = {"name": "a", "path": f"memory://{tmp_path.name}/*.jsonl", "length": length}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 1}, "sequence": "tokens", "lanes": 1}
    recipe = Recipe.parse({**values, "cache_dir": "cache"}, base_dir=tmp_path)
    (report,) = prepare(recipe, measure=True, verify=True).sources
    assert report.total_bytes > 32 << 20
    assert (report.num_rows, report.length_sum) == (3_400, 3_400 * 2_000)
