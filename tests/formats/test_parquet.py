"""Parquet files that pyarrow and `datasets` wrote give the rows that those read, in any order, in bounded memory."""

from __future__ import annotations

import importlib
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import columnar_data
from columnar_data import AUDIO_FEATURES, check_ranks, every_type, expected_rows, parquet, plain, read_rows, wav
from playhead import Loader
from playhead.errors import DataError, PlayheadError, PrepareError, RecipeError, StoreError
from playhead.formats.media import Media
from playhead.formats.parquet import ParquetReader
from playhead.formats.rows import Fetch
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.store import CountingFiles, LocalFiles, all_files
from playhead.testing import check_format


def recipe_of(folder: Path, source: dict[str, Any] | None = None, **fields: Any) -> Recipe:
    return columnar_data.recipe_of(folder, {"path": "*.parquet", **(source or {})}, **fields)


def test_parquet_keeps_the_contract() -> None:
    table = every_type().drop_columns(["pair", "nano", "gaps", "names", "matrix", "turns", "map", "meta"])
    files = {"a.parquet": parquet(table.slice(0, 9), 4), "b.parquet": parquet(table.slice(9), 5)}
    samples = expected_rows(table)
    for sample in samples:
        sample["tokens"] = np.array(sample["tokens"], np.int16)
        sample["scores"] = None if sample["scores"] is None else np.array(sample["scores"], np.float64)
    check_format({"path": "*.parquet", "length": "n", "ids": "text"}, files, samples)


@pytest.mark.parametrize("how", [{}, {"compression": "zstd", "data_page_version": "2.0"}, {"use_dictionary": False}])
def test_every_type_is_read_as_arrow_reads_it(tmp_path: Path, how: dict[str, Any]) -> None:
    table = every_type()
    (tmp_path / "a.parquet").write_bytes(parquet(table, 4, **how))
    expected = expected_rows(pq.read_table(tmp_path / "a.parquet"))
    found = read_rows(recipe_of(tmp_path))
    assert [plain(sample) for sample in found] == expected
    assert list(found[0]) == table.column_names
    order = np.random.default_rng(1).permutation(len(expected))
    assert [plain(sample) for sample in read_rows(recipe_of(tmp_path), order)] == [expected[i] for i in order]
    assert found[4]["tokens"].dtype == np.int16
    assert found[4]["scores"].dtype == np.float64
    assert found[1]["gaps"] == [1, None, 1]
    assert found[2]["gaps"].dtype == np.int32
    assert found[4]["meta"]["ids"].dtype == np.int64
    assert found[0]["pair"].dtype == np.float32


def test_files_of_datasets_give_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    datasets = importlib.import_module("datasets")
    rows = [{"id": i, "text": f"t{i}", "tags": [str(i)] * (i % 3), "deep": {"a": [i], "b": None}} for i in range(50)]
    dataset = datasets.Dataset.from_list(rows)
    dataset.to_parquet(tmp_path / "a.parquet", batch_size=7)
    assert [plain(sample) for sample in read_rows(recipe_of(tmp_path))] == list(dataset)


def test_lengths_ids_columns_and_rules_are_read_from_their_columns_alone(tmp_path: Path) -> None:
    table = every_type()
    (tmp_path / "a.parquet").write_bytes(parquet(table, 6, use_dictionary=["kind"]))
    source = {
        "length": {"field": "text", "unit": "bytes"},
        "output_length": "n",
        "ids": "text",
        "keep": {"kind": ["red"], "meta.n": [2, 20], "meta.lang": "p*"},
        "columns": ["maybe", "float"],
    }
    recipe = recipe_of(tmp_path, source)
    prepare(recipe)
    found = open_table(leaves(recipe)[0], recipe)
    rows = table.to_pylist()
    kept = [row for row in rows if row["kind"] == "red" and 2 <= row["meta"]["n"] <= 20 and row["meta"]["lang"] == "pl"]
    assert len(kept) > 5
    every = np.arange(found.num_rows)
    assert found.lengths_of(every).tolist() == [len(row["text"].encode()) for row in kept]
    assert found.outputs_of(every).tolist() == [row["n"] for row in kept]
    assert found.find(kept[3]["text"]).tolist() == [3]
    floats = np.asarray(found.index.column("maybe"))
    assert np.isnan(floats[3])
    assert floats[4] == np.float32(2**60 + 4)


def test_a_scan_without_content_reads_the_footer_only_and_with_it_the_columns_asked_for(tmp_path: Path) -> None:
    rows = 500
    noise = np.random.default_rng(0)
    table = pa.table({"n": range(rows), "blob": [noise.bytes(2000) for _ in range(rows)]})
    (tmp_path / "a.parquet").write_bytes(parquet(table, 100))
    files = CountingFiles(all_files())
    prepare(recipe_of(tmp_path), processes=False, files=files)
    assert files.counts["bytes"] <= 1 << 16
    files = CountingFiles(all_files())
    prepare(recipe_of(tmp_path, {"length": "n"}), processes=False, files=files)
    assert files.counts["bytes"] < 1 << 17
    files = CountingFiles(LocalFiles())
    found = read_rows(recipe_of(tmp_path, {"options": {"columns": ["n"]}}), [7, 450, 8], files)
    assert found == [{"n": 7}, {"n": 450}, {"n": 8}]
    assert files.counts["bytes"] < 1 << 17


def test_lengths_by_a_function_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(every_type(), 6))
    (tmp_path / "own_lengths.py").write_text("def count(sample):\n    return len(sample['tokens'])\n")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = recipe_of(tmp_path, {"length": {"function": "own_lengths:count"}})
    prepare(recipe, processes=False)
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.arange(23)).tolist() == list(range(23))


def test_decoded_row_groups_are_kept_up_to_two_groups_of_the_shuffle(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"n": range(60)}), 3))
    recipe = recipe_of(tmp_path, {"shuffle": "shards", "shuffle_group": 2})
    prepare(recipe)
    leaf = leaves(recipe)[0]
    table = open_table(leaf, recipe)
    reader, files = ParquetReader(leaf.source), CountingFiles(all_files())

    def read(order: list[int]) -> list[int]:
        rows = table.locate(np.array(order), Fetch(files, table.index.stamps))
        return [sample["n"] for sample in reader.read(rows)]

    assert read([*range(0, 60, 7)]) == [*range(0, 60, 7)]
    assert len(reader.kept) == 4
    read([0, 4, 8, 10])
    before = files.counts["bytes"]
    assert read([11, 9, 0, 5, 5, 3, 6]) == [11, 9, 0, 5, 5, 3, 6]
    assert files.counts["bytes"] == before


def test_audio_columns_become_media_by_the_features_or_by_the_options(tmp_path: Path) -> None:
    (tmp_path / "beside.wav").write_bytes(wav(30))
    held = [{"bytes": wav(10 + i), "path": None} for i in range(3)] + [{"bytes": None, "path": "beside.wav"}]
    table = pa.table({"audio": held, "plain": [row["bytes"] or wav(5) for row in held], "n": range(4)})
    named = table.replace_schema_metadata(AUDIO_FEATURES)
    (tmp_path / "a.parquet").write_bytes(parquet(named, 3))
    recipe = recipe_of(tmp_path, {"options": {"audio": ["plain"]}, "shuffle": "none"}, epochs=1)
    found = read_rows(recipe)
    assert found[1]["audio"] == Media("audio", data=wav(11), base=str(tmp_path))
    assert found[3]["audio"] == Media("audio", path="beside.wav", base=str(tmp_path))
    assert found[3]["plain"] == Media("audio", data=wav(5))
    samples = [sample for batch in Loader(recipe) for sample in batch["samples"]]
    assert [len(sample["audio"]) for sample in samples] == [10, 11, 12, 30]
    assert {sample["audio_rate"] for sample in samples} == {16000}
    assert [len(sample["plain"]) for sample in samples] == [10, 11, 12, 5]


def test_ranks_share_the_rows_and_a_run_resumes_on_another_number_of_them(tmp_path: Path) -> None:
    for part in range(3):
        table = pa.table({"n": [3] * 70, "tokens": [[part, i, 7] for i in range(70)]})
        (tmp_path / f"{part}.parquet").write_bytes(parquet(table, 16))
    source = {"length": "n", "shuffle": "shards", "shuffle_group": 2}
    recipe = recipe_of(tmp_path, source, lanes=20, sequence="tokens", collate="pad", epochs=1)
    prepare(recipe)
    check_ranks(recipe, 210, workers=1)


BAD = {
    "cut short": (lambda good: good[:-200], "has no footer"),
    "no Parquet": (lambda _: b"hello, world" * 9, "has no footer"),
    "empty": (lambda _: b"", "has no footer"),
    "footer cut": (lambda good: good[-100:-8] + good[-8:], "is truncated"),
    "broken footer": (lambda good: good[:-60] + bytes(52) + good[-8:], "its footer: broken"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    good = parquet(pa.table({"n": range(10), "text": ["x"] * 10}), 5)
    break_, words = BAD[name]
    (tmp_path / "a.parquet").write_bytes(good)
    (tmp_path / "b.parquet").write_bytes(break_(good))
    with pytest.raises(PrepareError) as caught:
        prepare(recipe_of(tmp_path, {"length": "n"}), workers=1)
    assert words in str(caught.value)
    assert "b.parquet" in str(caught.value)


def test_broken_pages_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    good = bytearray(parquet(pa.table({"n": range(1000), "text": [f"x{i}" for i in range(1000)]}), 500))
    good[10:400] = bytes(390)
    (tmp_path / "a.parquet").write_bytes(good)
    with pytest.raises(PrepareError, match=r"a\.parquet, row group 0: broken"):
        prepare(recipe_of(tmp_path, {"length": "n"}), workers=1)
    with pytest.raises(DataError, match=r"a\.parquet, row group 0: broken"):
        read_rows(recipe_of(tmp_path))


def test_wrong_values_name_the_file_and_the_row(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"n": [1, 2, None, 4], "text": ["a"] * 4}), 2))
    for length, words in (
        ("n", 'row 2: field "n" is not a length'),
        ("m", 'row 0: field "m" is not a length'),
        ({"unit": "bytes"}, "needs a field in columnar formats"),
        ({"field": "n", "unit": "bytes"}, "no size in bytes"),
    ):
        with pytest.raises(PrepareError) as caught:
            prepare(recipe_of(tmp_path, {"length": length}), workers=1)
        assert words in str(caught.value)
        assert "a.parquet" in str(caught.value)


def test_a_text_that_is_not_utf8_names_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"\xff\xfe", b"good"]).view(pa.string())
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"text": texts}), 5))
    with pytest.raises(PrepareError, match=r"a\.parquet, row 1: a text is not UTF-8"):
        prepare(recipe_of(tmp_path, {"ids": "text"}), workers=1)
    recipe = recipe_of(tmp_path)
    prepare(recipe)
    with pytest.raises(DataError, match=r'source "s", row 1 .*a\.parquet.*row 1 of the block.*: a text is not UTF-8'):
        list(Loader(recipe))


def test_types_that_are_not_read_are_refused_by_name(tmp_path: Path) -> None:
    times = pa.array([[1, 2]], pa.list_(pa.timestamp("ns")))
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"times": times, "n": [1]}), 2))
    with pytest.raises(PrepareError, match=r'a\.parquet: column "times.* has an unsupported type'):
        prepare(recipe_of(tmp_path), workers=1)
    assert read_rows(recipe_of(tmp_path, {"options": {"columns": ["n"]}})) == [{"n": 1}]
    with pytest.raises(PrepareError, match=r'a\.parquet: column "n" holds no audio'):
        read_rows(recipe_of(tmp_path, {"options": {"columns": ["n"], "audio": ["n"]}}))


def test_a_file_that_changes_under_a_running_loader_is_a_store_error(tmp_path: Path) -> None:
    def write(rows: int) -> None:
        (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"n": range(rows)}), 5))

    write(40)
    recipe = recipe_of(tmp_path, {"shuffle": "none"}, on_error="substitute")
    prepare(recipe)
    for change in (lambda: write(41), lambda: (tmp_path / "a.parquet").write_bytes(b"")):
        write(40)
        prepare(recipe)
        batches = iter(Loader(recipe))
        next(batches)
        change()
        with pytest.raises(StoreError, match=r"a\.parquet"):
            list(islice(batches, 30))


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PlayheadError, match=r"pip install 'playhead\[arrow\]'"):
        prepare(recipe_of(tmp_path), workers=1)
    with pytest.raises(RecipeError, match=r"pip install 'playhead\[arrow\]'"):
        ParquetReader(leaves(recipe_of(tmp_path))[0].source)
