"""The rows of a source by its format's scan: those that `prepare` selects, found without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpora import recipe_in, write_speech
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.seeds import hash_text
from playhead.verify.enumeration import EnumeratedSource, enumerate_source, id_of
from small_data import write_jsonl

RULES: dict[str, dict[str, Any]] = {
    "no rule": {},
    "a range": {"keep": {"score": [0.1, 0.5]}},
    "an open range": {"keep": {"score": [None, 0.5]}},
    "a ratio": {"keep": {"n/score": [20, 70]}},
    "a planned length": {"keep": {"@length": [10, 30], "@length/score": [20, None]}},
    "words": {"keep": {"lang": ["en", "pl"]}},
    "a pattern": {"keep": {"id": "re:-[0-4]$"}},
    "ids": {"drop_ids": ["drop.txt"], "ids": "id"},
    "rows": {"drop_rows": ["rows.txt"]},
    "all of them": {
        "keep": {"score": [0.2, None], "lang": "e*"},
        "drop_ids": ["drop.txt"],
        "drop_rows": ["rows.txt"],
        "ids": "id",
    },
}


def rows_of(shard: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"s{shard}-{i}",
            "n": 5 + i * 7 % 40,
            "lang": ("en", "pl", "xx", 3)[i % 4],
            **({} if i % 9 == 4 else {"score": i % 10 / 10}),
        }
        for i in range(count)
    ]


def enumerated(folder: Path, most_rows: int | None = None, **source: Any) -> tuple[EnumeratedSource, Any]:
    batching, id_field = source.pop("batching", {"type": "fixed", "size": 2}), source.pop("id_field", "id")
    recipe = recipe_in(folder, {"name": "s", "path": "s-*.jsonl", "length": "n", **source}, batching=batching)
    prepare(recipe, workers=1)
    leaf = leaves(recipe)[0]
    table = open_table(leaf, recipe)
    return enumerate_source(leaf, recipe, table, id_field, most_rows), table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for shard, count in enumerate((30, 1, 44)):
        write_jsonl(tmp_path / f"s-{shard}.jsonl", rows_of(shard, count))
    (tmp_path / "drop.txt").write_text("# a comment\ns0-3\ns2-7\nnobody\n")
    (tmp_path / "rows.txt").write_text("0\n31\n\n74\n")
    return tmp_path


@pytest.mark.parametrize("rule", RULES)
def test_the_rows_found_are_those_selected(rule: str, folder: Path) -> None:
    found, table = enumerated(folder, **RULES[rule])
    assert found.stale is None
    assert found.num_rows == table.num_rows
    assert [shard.num_rows for shard in found.shards] == table.shard_rows.tolist()
    # The id of every row is that of the line where the index says the row is.
    find = id_of(found)
    written = [row["id"] for shard, count in enumerate((30, 1, 44)) for row in rows_of(shard, count)]
    import numpy as np

    raw = table.raw_rows(np.arange(table.num_rows)).tolist()
    assert [find(row) for row in range(table.num_rows)] == [hash_text(written[r]) for r in raw]


def test_rows_too_long_are_left_out_as_in_the_selection(folder: Path) -> None:
    found, table = enumerated(folder, batching={"type": "pack", "max_length": 20, "overlong": "drop"})
    assert 0 < found.num_rows == table.num_rows < 75


def test_of_a_large_source_some_shards_are_scanned(folder: Path) -> None:
    found, table = enumerated(folder, most_rows=20)
    assert not found.is_whole
    assert found.num_rows == table.num_rows == 75
    assert 1 <= len(found.shards) < 3
    known = [id_of(found)(row) is not None for row in range(75)]
    assert sum(known) == sum(shard.num_rows for shard in found.shards)


def test_rows_without_ids_are_enumerated_too(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "s-0.jsonl", [{"n": i + 1} for i in range(9)])
    found, _ = enumerated(tmp_path)
    assert (found.num_rows, found.stale, id_of(found)(3)) == (9, None, hash_text("s-0.jsonl:3"))


def test_the_field_that_holds_ids_can_be_another(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "s-0.jsonl", [{"n": i + 1, "id": i, "name": f"row {i}"} for i in range(9)])
    assert id_of(enumerated(tmp_path, id_field="name")[0])(3) == hash_text("row 3")
    assert id_of(enumerated(tmp_path, id_field="nowhere")[0])(3) == hash_text("3")


def test_tars_are_enumerated_by_their_keys(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, write_speech(tmp_path, "calls", [[1.0, 2.0, 3.0], [4.0]]))
    prepare(recipe, workers=1)
    leaf = leaves(recipe)[0]
    found = enumerate_source(leaf, recipe, open_table(leaf, recipe), "id", None)
    assert (found.num_rows, found.stale) == (4, None)
    assert [id_of(found)(row) for row in range(4)] == [hash_text(f"0000{i}") for i in (0, 1, 2, 0)]


def changed_after(folder: Path, change: Any) -> EnumeratedSource:
    recipe = recipe_in(folder, {"name": "s", "path": "s-*.jsonl", "length": "n"})
    prepare(recipe, workers=1)
    leaf = leaves(recipe)[0]
    table = open_table(leaf, recipe)
    change()
    return enumerate_source(leaf, recipe, table, "id", None)


def test_files_that_are_not_those_of_the_index_are_told(folder: Path) -> None:
    text = (folder / "s-2.jsonl").read_text()
    found = changed_after(folder, lambda: write_jsonl(folder / "s-2.jsonl", rows_of(2, 43)))
    assert found.stale.endswith("s-2.jsonl: 43 rows now, 44 in the index")
    (folder / "s-2.jsonl").write_text(text)
    found = changed_after(folder, lambda: (folder / "s-1.jsonl").rename(folder / "away"))
    assert found.stale.startswith("1 shards of the index are gone, the first")
    (folder / "away").rename(folder / "s-1.jsonl")
    longer = [{**row, "n": row["n"] + (row["id"] == "s0-7")} for row in rows_of(0, 30)]
    found = changed_after(folder, lambda: write_jsonl(folder / "s-0.jsonl", longer))
    assert "s-0.jsonl, row 7 of 30: lengths 15 now, 14 in the index" in found.stale
