"""What a node reads in an epoch, compared with the shards that its lanes really touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import prepared, recipe_in, write_text
from playhead.errors import PlayheadError
from playhead.inspect.node_bytes import node_bytes
from playhead.plan.plan import Plan
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables


def touched(recipe: Recipe, plan: Plan, num_nodes: int, world_size: int) -> dict[str, int]:
    """The bytes of all shards that each node's lanes draw a row of in the first epoch, on the node with the most."""
    tables = {table.name: table for table in map_tables(recipe).values()}
    seen: dict[tuple[str, int], set[int]] = {}
    left = {name: table.num_rows for name, table in tables.items()}
    for step, _ in plan.steps():
        for batch in step.micro_batches:
            node = batch.lane % world_size // (world_size // num_nodes)
            names = plan.streams[batch.stream].source_names
            picks = zip(batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True)
            for source, epoch, row in picks:
                name = names[source]
                if epoch == 0:
                    left[name] -= 1
                    shard = int(np.searchsorted(np.cumsum(tables[name].shard_rows), row, side="right"))
                    seen.setdefault((name, node), set()).add(shard)
        if max(left.values()) <= 0:
            break
    sizes = {name: table.unit_bytes for name, table in tables.items()}
    return {
        name: max(int(sizes[name][sorted(shards)].sum()) for (of, _), shards in seen.items() if of == name)
        for name in tables
    }


@pytest.mark.parametrize(("num_nodes", "world_size"), [(1, 1), (2, 2), (4, 4), (2, 4), (2, 8), (4, 8), (8, 8)])
@pytest.mark.parametrize("shuffle", ["shards", "global"])
def test_the_bytes_of_a_node_are_those_of_the_shards_it_touches(
    tmp_path: Path, shuffle: str, num_nodes: int, world_size: int
) -> None:
    source = {**write_text(tmp_path, "a", [[20 + i] * (80 + i) for i in range(24)]), "shuffle": shuffle}
    fields: dict[str, Any] = {"lanes": 8, "batching": {"type": "fixed", "size": 2}}
    parted, whole = (recipe_in(tmp_path, source, **fields, parts=parts) for parts in (8, 1))
    plans = [prepared(recipe) for recipe in (parted, whole)]
    found = node_bytes(parted, plans[0], map_tables(parted), num_nodes, world_size)
    (read,) = found.sources
    assert (found.num_nodes, found.world_size, found.parts) == (num_nodes, world_size, 8)
    assert read.num_bytes == sum(path.stat().st_size for path in tmp_path.glob("a-*.jsonl"))
    assert read.with_parts == pytest.approx(touched(parted, plans[0], num_nodes, world_size)["a"], rel=1e-3)
    assert read.without_parts == pytest.approx(touched(whole, plans[1], num_nodes, world_size)["a"], rel=1e-3)
    assert read.with_parts == pytest.approx(read.num_bytes / num_nodes, rel=0.25)
    (alone,) = node_bytes(whole, plans[1], map_tables(whole), num_nodes, world_size).sources
    assert alone.with_parts == alone.without_parts == read.without_parts


def test_small_shards_are_missed_by_some_nodes_as_often_as_expected(tmp_path: Path) -> None:
    source = {**write_text(tmp_path, "a", [[20] * 3 for _ in range(300)]), "shuffle": "global"}
    recipe = recipe_in(tmp_path, source, lanes=4, batching={"type": "fixed", "size": 2})
    plan = prepared(recipe)
    (read,) = node_bytes(recipe, plan, map_tables(recipe), 4).sources
    assert read.with_parts < 0.65 * read.num_bytes
    assert read.with_parts == pytest.approx(touched(recipe, plan, 4, 4)["a"], rel=0.1)


@pytest.mark.parametrize("fuse", ["zip", {"one": 1, "two": 2}])
def test_sub_streams_are_read_by_the_nodes_that_have_their_lanes(tmp_path: Path, fuse: Any) -> None:
    groups = [
        {
            "name": group,
            "batching": {"type": "fixed", "size": 2},
            "sources": [write_text(tmp_path, name, [[20] * 60] * 6)],
            **({"lanes": 2} if fuse == "zip" else {}),
        }
        for group, name in (("one", "a"), ("two", "b"))
    ]
    recipe = recipe_in(tmp_path, *groups, lanes=4, fuse=fuse)
    plan = prepared(recipe)
    expected = touched(recipe, plan, 2, 4)
    found = {read.name: read.with_parts for read in node_bytes(recipe, plan, map_tables(recipe), 2, 4).sources}
    assert found == pytest.approx(expected, rel=1e-3)


def test_nodes_that_cannot_share_the_ranks_are_refused(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, write_text(tmp_path, "a", [[20] * 60] * 6), lanes=4)
    plan = prepared(recipe)
    with pytest.raises(PlayheadError, match="3 nodes cannot share 4 ranks evenly"):
        node_bytes(recipe, plan, map_tables(recipe), 3, 4)


@pytest.mark.parametrize(("world_size", "num_nodes"), [(None, 8), (1, 1), (2, 2), (4, 4), (8, 8), (16, 8)])
def test_nodes_that_are_not_given_are_as_many_of_the_parts_as_can_share_the_ranks(
    tmp_path: Path, world_size: int | None, num_nodes: int
) -> None:
    source = write_text(tmp_path, "a", [[20]] * 24)
    recipe = recipe_in(tmp_path, source, lanes=16, parts=8, batching={"type": "fixed", "size": 2})
    found = node_bytes(recipe, prepared(recipe), map_tables(recipe), None, world_size)
    assert (found.num_nodes, found.world_size) == (num_nodes, world_size or 8)
