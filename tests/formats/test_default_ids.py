"""The ids of rows where the recipe names none: their own or, where they have none, file and number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from columnar_data import ipc_file, parquet, recipe_of, stream
from playhead.errors import PrepareError
from playhead.formats.megatron_idx import bin_path, write_idx
from playhead.formats.text import Text
from playhead.prepare import prepare
from small_data import table_of, write_jsonl

NAMES = ["a", "b"]  # of the files, of 7 rows each


def columns(folder: Path, write: Any, ending: str, **more: Any) -> dict[str, Any]:
    for number, name in enumerate(NAMES):
        rows = range(7 * number, 7 * number + 7)
        table = pa.table({"n": rows, **{field: [make(i) for i in rows] for field, make in more.items()}})
        (folder / f"{name}.{ending}").write_bytes(write(table, 3))
    return {"path": f"*.{ending}"}


def write_text(folder: Path) -> dict[str, Any]:
    for name in NAMES:
        (folder / f"{name}.txt").write_text("".join(f"line {i}\n" for i in range(7)))
    return {"path": "*.txt"}


def write_pairs(folder: Path) -> dict[str, Any]:
    for name in NAMES:
        for side in ("en", "de"):
            (folder / f"{name}.{side}").write_text("".join(f"line {i}\n" for i in range(7)))
    return {"path": "*.en", "format": "text_pair", "options": {"second": "*.de"}}


def write_megatron(folder: Path) -> dict[str, Any]:
    for name in NAMES:
        prefix = str(folder / name)
        Path(bin_path(prefix)).write_bytes(np.arange(14, dtype="<i4").tobytes())
        write_idx(prefix, np.dtype(np.int32), np.full(7, 2, np.int32), np.arange(8))
    return {"path": "*.bin"}


def write_messages(folder: Path, ending: str) -> dict[str, Any]:
    rows = [{"messages": [{"role": "user", "content": f"line {i}"}]} for i in range(7)]
    for name in NAMES:
        if ending == "json":
            (folder / f"{name}.json").write_text(json.dumps(rows, indent=1))
        elif ending == "jsonl":
            write_jsonl(folder / f"{name}.jsonl", rows)
        else:
            (folder / f"{name}.parquet").write_bytes(parquet(pa.Table.from_pylist(rows), 3))
    return {"path": f"*.{ending}", "format": "messages"}


def write_conversations(folder: Path) -> dict[str, Any]:
    for name in NAMES:
        rows = [{"conversations": [{"from": "User", "value": f"line {i}"}]} for i in range(7)]
        write_jsonl(folder / f"{name}.jsonl", rows)
    return {"path": "*.jsonl", "format": "multimodal_conversation"}


PLACED = {
    "parquet": (lambda folder: columns(folder, parquet, "parquet"), "b.parquet:4"),
    "arrow stream": (lambda folder: columns(folder, stream, "arrow"), "b.arrow:4"),
    "arrow file": (lambda folder: columns(folder, ipc_file, "arrow"), "b.arrow:4"),
    "text": (write_text, "b.txt:4"),
    "text_pair": (write_pairs, "b.en:4"),
    "megatron": (write_megatron, "b.bin:4"),
    "messages in lines": (lambda folder: write_messages(folder, "jsonl"), "b.jsonl:4"),
    "messages in arrays": (lambda folder: write_messages(folder, "json"), "b.json:4"),
    "messages in parquet": (lambda folder: write_messages(folder, "parquet"), "b.parquet:4"),
    "multimodal_conversation": (write_conversations, "b.jsonl:4"),
}


@pytest.mark.parametrize("name", PLACED)
def test_rows_without_ids_are_found_by_file_and_number(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Text, "section_bytes", 20)
    write, sample_id = PLACED[name]
    (tmp_path / "drop.txt.ids").write_text("a.none:3\n" + sample_id.replace(":4", ":1") + "\n")
    recipe = recipe_of(tmp_path, {**write(tmp_path), "drop_ids": "drop.txt.ids"})
    for memory_mb in (8, 256):
        report = prepare(recipe, workers=1, memory_mb=memory_mb, force=True)
        assert report.sources[0].num_rows == 14
        assert report.sources[0].selected_rows == 13
        table = table_of(recipe)
        assert table.find(sample_id).tolist() == [10]
        assert table.find(sample_id.replace("b.", "a.").replace(":4", ":0")).tolist() == [0]


@pytest.mark.parametrize(("write", "ending"), [(parquet, "parquet"), (stream, "arrow")])
def test_a_column_of_ids_is_used_and_its_nulls_have_file_and_number(tmp_path: Path, write: Any, ending: str) -> None:
    source = columns(tmp_path, write, ending, id=lambda i: None if i % 5 == 3 else f"row {i}")
    (tmp_path / "drop.ids").write_text(f"row 2\nb.{ending}:1\n")
    options = {"columns": ["n"]}  # ids need not be delivered
    recipe = recipe_of(tmp_path, {**source, "drop_ids": "drop.ids", "options": options})
    prepare(recipe)
    table = table_of(recipe)
    assert table.num_rows == 12
    assert table.find("row 4").tolist() == [3]
    assert table.find(f"a.{ending}:3").tolist() == [2]
    assert table.find(f"a.{ending}:4").tolist() == []


@pytest.mark.parametrize(("write", "ending"), [(parquet, "parquet"), (stream, "arrow")])
def test_a_column_of_ids_that_are_none_is_refused_with_the_row(tmp_path: Path, write: Any, ending: str) -> None:
    source = columns(tmp_path, write, ending, id=lambda i: i / 2)
    (tmp_path / "drop.ids").write_text("1\n")
    with pytest.raises(PrepareError, match=rf'a\.{ending}, row 0: no id in field "id"'):
        prepare(recipe_of(tmp_path, {**source, "drop_ids": "drop.ids"}))


def test_rows_that_indices_name_have_the_ids_of_their_files(tmp_path: Path) -> None:
    columns(tmp_path, stream, "arrow")
    (tmp_path / "rows").write_bytes(stream(pa.table({"indices": pa.array([9, 3, 3], pa.uint64())}), 5))
    (tmp_path / "drop.ids").write_text("a.arrow:0\n")
    source = {"path": ["a.arrow", "b.arrow"], "drop_ids": "drop.ids", "options": {"indices": "rows"}}
    recipe = recipe_of(tmp_path, source)
    prepare(recipe)
    assert table_of(recipe).find("b.arrow:2").tolist() == [0]
    assert table_of(recipe).find("a.arrow:3").tolist() == [1, 2]
