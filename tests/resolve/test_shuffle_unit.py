"""`shuffle_unit: block`: the order of few large files by their blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from columnar_data import parquet, recipe_of
from playhead.cli.plan_view import print_plan
from playhead.errors import RecipeError
from playhead.inspect.reading import reading_warnings
from playhead.inspect.summary import summarise
from playhead.order.source_order import rows_between
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables, open_plan
from small_data import write_jsonl

BLOCK = 7


def blocks_recipe(folder: Path, source: dict[str, Any] | None = None, **fields: Any) -> Recipe:
    """Two files of 100 and 60 rows, in row groups of 7."""
    for name, count in (("a", 100), ("b", 60)):
        (folder / f"{name}.parquet").write_bytes(
            parquet(pa.table({"n": range(count), "odd": np.arange(count) % 2}), BLOCK)
        )
    given = {"path": "*.parquet", "shuffle": "shards", "shuffle_group": 3, "shuffle_unit": "block", **(source or {})}
    recipe = recipe_of(folder, given, **fields)
    prepare(recipe)
    return recipe


def unit_sizes(count: int) -> list[int]:
    return [BLOCK] * (count // BLOCK) + [count % BLOCK]


def test_blocks_are_the_units_of_the_shuffle_and_groups_of_them_stay_together(tmp_path: Path) -> None:
    plan = open_plan(blocks_recipe(tmp_path, epochs=1))
    (order,) = plan.streams[0].orders
    assert order.shard_rows.tolist() == unit_sizes(100) + unit_sizes(60)
    for epoch in range(3):
        _, rows = rows_between(order, epoch * 160, (epoch + 1) * 160)
        assert sorted(rows.tolist()) == list(range(160))
        block_of = np.repeat(np.arange(len(order.shard_rows)), order.shard_rows)[rows]
        spans = [np.flatnonzero(block_of == block)[[0, -1]] for block in range(len(order.shard_rows))]
        in_use = [sum(first <= place <= last for first, last in spans) for place in range(160)]
        assert max(in_use) == 3


def test_only_selected_rows_count(tmp_path: Path) -> None:
    plan = open_plan(blocks_recipe(tmp_path, {"keep": {"odd": [1, 1]}}))
    (order,) = plan.streams[0].orders
    numbers = np.concatenate([np.arange(100), np.arange(60)])
    blocks = np.repeat(np.arange(15 + 9), unit_sizes(100) + unit_sizes(60))
    assert order.shard_rows.tolist() == np.bincount(blocks[numbers % 2 == 1], minlength=24).tolist()


def test_the_unit_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    by_block = open_plan(blocks_recipe(tmp_path)).fingerprint
    assert open_plan(blocks_recipe(tmp_path, {"shuffle_unit": "shard"})).fingerprint != by_block
    assert open_plan(blocks_recipe(tmp_path)).fingerprint == by_block


def test_parts_are_of_whole_blocks(tmp_path: Path) -> None:
    plan = open_plan(blocks_recipe(tmp_path, parts=4, lanes=4))
    orders = [stream.orders[0] for stream in plan.streams]
    assert np.concatenate([order.shard_rows for order in orders]).tolist() == unit_sizes(100) + unit_sizes(60)
    assert sorted(row for order in orders for row in rows_between(order, 0, order.num_rows)[1].tolist()) == [
        *range(160)
    ]
    with pytest.raises(RecipeError, match="24 blocks with rows"):
        blocks_recipe(tmp_path, parts=25, lanes=25)


def test_blocks_in_use_are_counted(tmp_path: Path) -> None:
    recipe = blocks_recipe(tmp_path)
    (table,) = map_tables(recipe).values()
    (peak,) = summarise(open_plan(recipe), 0, 8, {"s": table}).shard_peaks
    assert peak.unit == "block"
    assert 3 <= peak.num_shards <= 9
    assert peak.num_bytes <= peak.num_shards * int(table.unit_bytes.max())
    assert table.unit_bytes.sum() < sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))


def test_a_format_without_blocks_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"n": i} for i in range(9)])
    recipe = recipe_of(tmp_path, {"path": "a.jsonl", "shuffle": "shards", "shuffle_unit": "block"})
    with pytest.raises(RecipeError, match="its rows are not in blocks"):
        prepare(recipe)
    with pytest.raises(RecipeError, match="its rows are not in blocks"):
        open_plan(recipe)
    with pytest.raises(RecipeError, match="`shuffle_unit` requires `shuffle: shards`"):
        recipe_of(tmp_path, {"path": "a.jsonl", "shuffle_unit": "block"})


def test_a_plan_warns_of_shuffles_that_decode_blocks_again_and_again(tmp_path: Path, capsys: Any) -> None:
    for fields, remedy in (
        (
            {"shuffle": "global", "shuffle_unit": "shard", "shuffle_group": 8},
            "`shuffle: shards` and `shuffle_unit: block`",
        ),
        ({"shuffle_unit": "shard"}, "`shuffle_unit: block`"),
        ({}, None),
        ({"shuffle": "none", "shuffle_unit": "shard", "shuffle_group": 8}, None),
    ):
        recipe = blocks_recipe(tmp_path, fields)
        tables = map_tables(recipe)
        found = reading_warnings(recipe, tables)
        assert [warning.endswith(f"; write {remedy}") for warning in found] == ([] if remedy is None else [True])
        print_plan(recipe, open_plan(recipe), tables, None, 1, as_json=False)
        assert ("warning" in capsys.readouterr().out) == (remedy is not None)
