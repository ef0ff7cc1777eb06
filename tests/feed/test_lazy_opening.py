"""Opening a loader asks nothing of the storage; a shard that changed is refused when it is first used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from playhead import Loader, Recipe, StoreError
from playhead.prepare import prepare
from playhead.store import CountingFiles, all_files


def recipe_of(directory: Path, num_shards: int, **more: object) -> Recipe:
    for shard in range(num_shards):
        rows = [{"tokens": [shard, row]} for row in range(4)]
        (directory / f"{shard:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "sources": [{"name": "a", "path": "*.jsonl", "length": {"unit": "bytes"}, "shuffle": "none"}],
        "batching": {"type": "fixed", "size": 4},
        "epochs": 1,
        "lanes": 1,
    }
    recipe = Recipe.parse(values | more, base_dir=directory)
    prepare(recipe)
    return recipe


def test_opening_makes_no_request_and_a_batch_none_but_its_own(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, 12)
    files = CountingFiles(all_files())
    loader = Loader(recipe, rank=0, world_size=1, files=files)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert len(loader) == 12
    assert files.counts == {}
    next(iter(loader))
    assert (files.counts["read"], files.counts["stamp"], files.counts["list"]) == (1, 0, 0)


@pytest.mark.parametrize("policy", ["raise", "substitute"])
def test_a_changed_shard_is_an_error_before_its_first_row_and_not_before(tmp_path: Path, policy: str) -> None:
    recipe = recipe_of(tmp_path, 3, on_error=policy)
    with (tmp_path / "01.jsonl").open("a") as file:
        file.write("\n")
    delivered = iter(Loader(recipe))
    assert [row[0] for row in next(delivered)["tokens"].tolist()] == [0, 0, 0, 0]
    with pytest.raises(StoreError, match=r"01.jsonl: changed since it was indexed"):
        next(delivered)
    assert not list(tmp_path.glob(".playhead/quarantine/*/*"))


def test_a_shard_rewritten_with_the_same_size_is_refused(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, 1)
    path = tmp_path / "00.jsonl"
    path.write_bytes(path.read_bytes().replace(b"[0, 0]", b"[9, 9]"))
    os.utime(path, ns=(1, 1))
    with pytest.raises(StoreError, match="changed since it was indexed"):
        next(iter(Loader(recipe)))
