from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from playhead.errors import NotPreparedError, StoreError
from playhead.formats.registry import format_of
from playhead.formats.rows import Fetch
from playhead.index.table import open_tables
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Length, Recipe
from playhead.store import all_files
from small_data import all_lengths, recipe_over, table_of, write_jsonl, write_tar


def three_shards(folder: Path, **fields: object) -> Recipe:
    for i in range(3):
        write_jsonl(folder / f"{i}.jsonl", [{"n": i * 10 + j, "id": f"{i}-{j}"} for j in range(4)])
    return recipe_over(folder, **({"ids": "id"} | fields))


def test_an_unprepared_source_names_the_source_and_the_command(tmp_path: Path) -> None:
    recipe = three_shards(tmp_path)
    with pytest.raises(NotPreparedError, match=r'sources\[0\] "s"') as caught:
        table_of(recipe)
    assert "playhead prepare" in str(caught.value)


@pytest.mark.parametrize(
    "other", [{"length": Length(field="m")}, {"keep": {"n": [1, 5]}}, {"path": ["elsewhere.jsonl"]}]
)
def test_a_recipe_changed_since_preparing_is_not_prepared(tmp_path: Path, other: dict[str, object]) -> None:
    prepare(three_shards(tmp_path))
    with pytest.raises(NotPreparedError):
        table_of(three_shards(tmp_path, **other))


def test_a_shard_changed_since_indexing_is_named(tmp_path: Path) -> None:
    recipe = three_shards(tmp_path)
    prepare(recipe)
    path = tmp_path / "1.jsonl"

    def read_all() -> None:
        table = table_of(recipe)
        table.locate(np.arange(12), Fetch(all_files(), table.index.stamps)).payloads("jsonl")

    os.utime(path, ns=(1, 1))
    with pytest.raises(StoreError, match=r"1.jsonl: changed since"):
        read_all()
    prepare(recipe)
    path.write_bytes(path.read_bytes() + b'{"n": 1, "id": "x"}\n')
    with pytest.raises(StoreError, match=r"1.jsonl: changed since") as caught:
        read_all()
    assert "found" in str(caught.value)
    path.unlink()
    with pytest.raises(StoreError, match=r"1.jsonl: no such file"):
        read_all()


@pytest.mark.parametrize("name", ["lengths.npy", "keys.npy", "tracks/jsonl/offsets.npy"])
def test_a_damaged_index_is_refused_and_prepared_again(tmp_path: Path, name: str) -> None:
    recipe = three_shards(tmp_path)
    prepare(recipe)
    path = table_of(recipe).index.directory / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(NotPreparedError, match="prepare"):
        table_of(recipe)
    prepare(recipe)
    assert table_of(recipe).num_rows == 12


@pytest.mark.parametrize("keep", [{}, {"n": [2, 21]}])
def test_rows_are_found_by_id_and_read_back_from_where_the_table_says(tmp_path: Path, keep: dict[str, object]) -> None:
    recipe = three_shards(tmp_path, keep=keep)
    prepare(recipe)
    table = table_of(recipe)
    reader = format_of(recipe.sources[0], "sources[0]").format
    order = np.random.default_rng(0).permutation(table.num_rows)
    rows = table.locate(order, Fetch(all_files(), table.index.stamps))
    samples = list(reader.open(recipe.sources[0], all_files()).read(rows))
    assert [sample["n"] for sample in samples] == table.lengths_of(order).tolist()
    for row, sample in zip(order.tolist(), samples, strict=True):
        assert table.find(sample["id"]).tolist() == [row]
    assert table.find("nobody").size == 0
    if keep:
        assert table.find("0-0").size == 0


def test_a_place_names_the_shard_and_the_byte(tmp_path: Path) -> None:
    recipe = three_shards(tmp_path, keep={"n": [11, 99]})
    prepare(recipe)
    first = (tmp_path / "1.jsonl").read_bytes().index(b'{"n": 11')
    assert table_of(recipe).place(0) == f"{tmp_path / '1.jsonl'}, byte {first:,}"


def test_a_source_without_lengths_has_rows_of_length_0(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [(f"k{i}.txt", b"x") for i in range(4)])
    recipe = recipe_over(tmp_path, "*.tar", length=None)
    prepare(recipe)
    table = table_of(recipe)
    table.preload()
    assert (table.num_rows, table.length_sum, table.longest, table.histogram) == (4, 0, None, None)
    assert all_lengths(table) == [0, 0, 0, 0]


def test_arrays_are_read_only(tmp_path: Path) -> None:
    recipe = three_shards(tmp_path)
    prepare(recipe)
    table = table_of(recipe)
    table.preload()
    for array in (table.index.lengths, table.index.keys, *table.index.arrays.values()):
        assert not array.flags.writeable


def test_paths_of_the_leaves_name_the_tables(tmp_path: Path) -> None:
    recipe = three_shards(tmp_path)
    prepare(recipe)
    assert list(open_tables(leaves(recipe), recipe)) == ["sources[0]"]
