"""Arrow streams and files, and datasets of Hugging Face, give the rows that their own readers give."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import columnar_data
from columnar_data import (
    AUDIO_FEATURES,
    check_ranks,
    every_type,
    expected_rows,
    ipc_file,
    plain,
    read_rows,
    stream,
    wav,
)
from playhead import Loader
from playhead.errors import DataError, PrepareError, StoreError
from playhead.formats import arrow, batch_columns
from playhead.formats.arrow import Arrow, ArrowReader
from playhead.formats.contract import ScanLimits
from playhead.formats.ipc import RECORD_BATCH, batch_header, read_messages
from playhead.formats.media import Media
from playhead.formats.rows import Fetch, Places, Rows, Shard
from playhead.formats.spec import Spec
from playhead.index.table import open_table
from playhead.prepare import prepare
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe, Source
from playhead.store import CountingFiles, LocalFiles, all_files, open_file
from playhead.testing import check_format


def recipe_of(folder: Path, source: dict[str, Any] | None = None, **fields: Any) -> Recipe:
    return columnar_data.recipe_of(folder, {"path": "*.arrow", **(source or {})}, **fields)


@pytest.fixture
def by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every source were too large for memory, and every value large."""
    monkeypatch.setattr(arrow, "_KEPT_BYTES", 0)
    monkeypatch.setattr(batch_columns, "_LARGE_BYTES", 0)


def test_arrow_keeps_the_contract() -> None:
    table = every_type().select(["n", "text", "raw", "maybe", "kind", "tokens", "day", "none"])
    files = {"a.arrow": stream(table.slice(0, 9), 4), "b.arrow": ipc_file(table.slice(9), 5)}
    samples = expected_rows(table)
    for sample in samples:
        sample["tokens"] = np.array(sample["tokens"], np.int16)
    check_format({"path": "*.arrow", "length": "n", "ids": "text"}, files, samples)


WRITTEN = {
    "stream": (stream, {}, []),
    "file": (ipc_file, {}, []),
    "lz4": (stream, {"compression": "lz4"}, ["kind"]),
    "zstd file": (ipc_file, {"compression": "zstd"}, []),
    "without dictionaries": (stream, {}, ["kind"]),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("large", [False, True])
def test_every_type_is_read_as_arrow_reads_it(
    tmp_path: Path, name: str, large: bool, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("by_ranges")
    write, how, dropped = WRITTEN[name]
    table = every_type().drop_columns(dropped)
    (tmp_path / "a.arrow").write_bytes(write(table, 5, **how))
    expected = expected_rows(table)
    found = read_rows(recipe_of(tmp_path))
    assert [plain(sample) for sample in found] == expected
    assert list(found[0]) == table.column_names
    order = np.random.default_rng(1).permutation(len(expected))
    assert [plain(sample) for sample in read_rows(recipe_of(tmp_path), order)] == [expected[i] for i in order]
    assert found[4]["tokens"].dtype == np.int16
    assert found[4]["scores"].dtype == np.float64
    assert found[1]["gaps"] == [1, None, 1]
    assert found[0]["pair"].dtype == np.float32


def test_the_places_of_batches_are_those_that_pyarrow_writes(tmp_path: Path) -> None:
    """The oracle: bytes from each place on are a message that pyarrow reads as that batch."""
    table = every_type().drop_columns(["kind"])
    for write in (stream, ipc_file):
        (tmp_path / "a.arrow").write_bytes(write(table, 5))
        data = (tmp_path / "a.arrow").read_bytes()
        file = open_file(all_files(), str(tmp_path / "a.arrow"))
        batches = [message for message in read_messages(file) if message.kind == RECORD_BATCH]
        found = [pa.ipc.read_record_batch(pa.py_buffer(data[m.first : m.end]), table.schema) for m in batches]
        assert pa.Table.from_batches(found).equals(table)
        assert [batch_header(message, "here").num_rows for message in batches] == [5, 5, 5, 5, 3]


def test_dictionaries_that_grow_or_change_in_a_stream_are_those_of_their_batches(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema({"kind": pa.dictionary(pa.int32(), pa.string())})
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for words in (["a", "b"], ["a", "b", "c"], ["x"]):
            kinds = pa.DictionaryArray.from_arrays(pa.array(range(len(words)), pa.int32()), pa.array(words))
            writer.write_batch(pa.record_batch([kinds], schema=schema))
    (tmp_path / "a.arrow").write_bytes(sink.getvalue().to_pybytes())
    found = read_rows(recipe_of(tmp_path), [5, 4, 3, 2, 1, 0])
    assert [sample["kind"] for sample in found] == ["x", "c", "b", "a", "b", "a"]


def test_of_large_rows_the_bounds_are_kept_and_the_values_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_KEPT_BYTES", 1 << 20)
    noise = np.random.default_rng(0)
    audio = [{"bytes": noise.bytes(30_000), "path": f"{i}.wav"} for i in range(60)]
    table = pa.table({"n": range(60), "audio": audio, "signal": [noise.normal(size=5000) for _ in range(60)]})
    (tmp_path / "a.arrow").write_bytes(stream(table, 20))
    recipe = recipe_of(tmp_path)
    prepare(recipe)
    leaf = leaves(recipe)[0]
    opened = open_table(leaf, recipe)
    reader, files = ArrowReader(leaf.source), CountingFiles(LocalFiles())

    def read(order: list[int]) -> list[dict[str, Any]]:
        return list(reader.read(opened.locate(np.array(order), Fetch(files, opened.index.stamps))))

    for order in ([0, 25, 59], [58, 1, 26, 25]):
        for row, sample in zip(order, read(order), strict=True):
            assert sample["audio"] == audio[row]
            assert np.array_equal(sample["signal"], table["signal"][row].values.to_numpy())
    assert files.counts["bytes"] < 7 * 70_000 + 3 * (1 << 14)
    assert len(reader.kept) == 3
    before = files.counts.copy()
    read([2, 30])
    assert files.counts["bytes"] - before["bytes"] == 2 * 70_000


def test_small_sources_are_read_once_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(stream(pa.table({"text": [f"text {i}" * 20 for i in range(200)]}), 50))
    recipe = recipe_of(tmp_path)
    prepare(recipe)
    leaf = leaves(recipe)[0]
    opened = open_table(leaf, recipe)
    reader, files = ArrowReader(leaf.source), CountingFiles(LocalFiles())
    for _ in range(3):
        rows = opened.locate(np.random.default_rng(0).permutation(200), Fetch(files, opened.index.stamps))
        assert len(list(reader.read(rows))) == 200
    assert files.counts["bytes"] < 2 * (tmp_path / "a.arrow").stat().st_size + (1 << 14)


def test_lengths_ids_and_rules_are_collected(tmp_path: Path) -> None:
    table = every_type()
    for write, how in ((stream, {}), (ipc_file, {"compression": "zstd"})):
        (tmp_path / "a.arrow").write_bytes(write(table, 6, **how))
        source = {
            "length": {"field": "text", "unit": "bytes"},
            "ids": "n",
            "keep": {"kind": ["red"], "meta.n": [2, 20]},
        }
        recipe = recipe_of(tmp_path, source)
        prepare(recipe)
        found = open_table(leaves(recipe)[0], recipe)
        kept = [row for row in table.to_pylist() if row["kind"] == "red" and 2 <= row["meta"]["n"] <= 20]
        assert found.lengths_of(np.arange(found.num_rows)).tolist() == [len(row["text"].encode()) for row in kept]
        assert found.find(str(kept[2]["n"])).tolist() == [2]


def test_audio_is_decoded_in_place(tmp_path: Path, by_ranges: None) -> None:
    held = [{"bytes": wav(10 + i), "path": "x.wav"} for i in range(5)]
    table = pa.table({"audio": held, "n": range(5)}).replace_schema_metadata(AUDIO_FEATURES)
    (tmp_path / "a.arrow").write_bytes(stream(table, 2))
    recipe = recipe_of(tmp_path, {"shuffle": "none"}, epochs=1)
    assert read_rows(recipe)[1]["audio"] == Media("audio", data=wav(11), path="x.wav", base=str(tmp_path))
    samples = [sample for batch in Loader(recipe) for sample in batch["samples"]]
    assert [len(sample["audio"]) for sample in samples] == [10, 11, 12, 13, 14]


def test_ranks_share_the_rows_and_a_run_resumes_on_another_number_of_them(tmp_path: Path, by_ranges: None) -> None:
    for part in range(3):
        table = pa.table({"n": [3] * 70, "tokens": [[part, i, 7] for i in range(70)]})
        (tmp_path / f"{part}.arrow").write_bytes(stream(table, 16))
    recipe = recipe_of(tmp_path, {"length": "n"}, lanes=20, sequence="tokens", collate="pad", epochs=1)
    prepare(recipe)
    check_ranks(recipe, 210)


GOOD = pa.table({"n": range(10), "text": ["some text"] * 10})
BAD = {
    "cut short": (stream(GOOD, 5)[:-100], "is truncated"),
    "without an end": (stream(GOOD, 5)[:-8], "is truncated"),
    "file cut short": (ipc_file(GOOD, 5)[:-100], "is truncated"),
    "file of another": (ipc_file(GOOD, 5)[:-10] + b"\0\0\0\0ARROW1", "broken"),
    "no Arrow": (b"hello, world" * 20, "not an Arrow message"),
    "empty": (b"", "is truncated"),
    "broken metadata": (stream(GOOD, 5)[:8] + b"\xff" * 64 + stream(GOOD, 5)[72:], "broken"),
    "no schema": (stream(GOOD, 5)[8 + int.from_bytes(stream(GOOD, 5)[4:8], "little") :], "does not begin with"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    data, words = BAD[name]
    (tmp_path / "b.arrow").write_bytes(data)
    with pytest.raises(PrepareError) as caught:
        prepare(recipe_of(tmp_path, {"length": "n"}), workers=1)
    assert words in str(caught.value)
    assert "b.arrow" in str(caught.value)


def test_a_stream_without_an_end_passes_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(stream(GOOD, 5)[:-8])
    assert read_rows(recipe_of(tmp_path, {"options": {"allow_no_end": True}})) == GOOD.to_pylist()


def read_unprepared(path: Path) -> list[dict[str, Any]]:
    """All rows of a file, scanned and read without an index."""
    files, shard, source = all_files(), Shard((("arrow", str(path)),)), Source(name="s", path=[str(path)])
    chunks = list(Arrow().scan(shard, Spec(), files, ScanLimits()))
    if not chunks:
        return []
    first, end, num_rows = (
        np.concatenate([chunk.arrays[f"tracks/arrow/{name}"] for chunk in chunks])
        for name in ("block_firsts", "block_ends", "block_rows")
    )
    blocks = np.repeat(np.arange(len(first)), num_rows.astype(np.int64))
    numbers = np.concatenate([np.arange(count) for count in num_rows.astype(np.int64)])
    fetch = Fetch(files, {str(path): files.stamp(str(path))})
    rows = Rows([shard] * len(blocks), numbers, {"arrow": Places(first[blocks], end[blocks], numbers)}, fetch)
    return list(Arrow().open(source, files).read(rows))


@pytest.mark.parametrize("large", [False, True])
def test_bytes_that_contradict_each_other_never_crash(
    tmp_path: Path, large: bool, request: pytest.FixtureRequest
) -> None:
    """Every byte of a batch is set to nonsense: an error that names the file, or rows with all their columns."""
    if large:
        request.getfixturevalue("by_ranges")
    table = pa.table({"text": ["abc", None, "de"], "tokens": [[1, 2], [], [3]], "deep": [[["x"]], [], [["y", "z"]]]})
    good = stream(table, 3)
    path = tmp_path / "a.arrow"
    path.write_bytes(good)
    assert [plain(row) for row in read_unprepared(path)] == table.to_pylist()
    batch = next(m for m in read_messages(open_file(all_files(), str(path))) if m.kind == RECORD_BATCH)
    problems = []
    for at in range(batch.first, batch.end):
        path.write_bytes(good[:at] + b"\x7f" + good[at + 1 :])
        try:
            found = read_unprepared(path)
        except DataError as error:
            problems.append(str(error))
        else:
            assert all(sample.keys() == {"text", "tokens", "deep"} for sample in found)
    assert len(problems) > 100
    assert all("a.arrow" in problem for problem in problems)


def test_indices_past_the_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(stream(GOOD, 5))
    (tmp_path / "rows").write_bytes(stream(pa.table({"indices": pa.array([3, 10], pa.uint64())}), 5))
    source = {"path": "a.arrow", "options": {"indices": "rows"}}
    with pytest.raises(PrepareError, match=r"rows: references a row that is in none of the files"):
        prepare(recipe_of(tmp_path, source))


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_changes_under_a_running_loader_is_a_store_error(
    tmp_path: Path, large: bool, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("by_ranges")
    path = tmp_path / "a.arrow"
    good = stream(pa.table({"text": ["a text"] * 4000}), 500)
    for change in (lambda: path.write_bytes(good + b"\0"), lambda: path.write_bytes(good[:2000])):
        path.write_bytes(good)
        recipe = recipe_of(tmp_path, {"shuffle": "none"}, on_error="substitute", batching={"type": "fixed", "size": 50})
        prepare(recipe)
        batches = iter(Loader(recipe))
        next(batches)
        change()
        with pytest.raises(StoreError, match=r"a\.arrow"):
            list(islice(batches, 79))
