"""Arrow streams and files, and datasets of Hugging Face, give the rows that their own readers give."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
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
from playhead.errors import DataError, PrepareError, RecipeError, StoreError
from playhead.formats import arrow, batch_columns
from playhead.formats.arrow import Arrow, ArrowReader, source_of
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
def datasets(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    found = importlib.import_module("datasets")
    found.disable_progress_bars()
    return found


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


@pytest.fixture
def saved(tmp_path: Path, datasets: Any) -> Any:
    """A dataset in two files, loaded from where it was saved."""
    rows = [
        {"id": i, "text": f"t{i}" * 9, "tags": [str(i)] * (i % 3), "deep": {"a": [i], "b": None}} for i in range(50)
    ]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"), num_shards=2)
    return datasets.load_from_disk(str(tmp_path / "saved"))


def test_saved_directories_give_the_rows_of_the_dataset(tmp_path: Path, saved: Any, datasets: Any) -> None:
    recipe = recipe_of(tmp_path, {"path": "saved", "format": "arrow"})
    assert [plain(sample) for sample in read_rows(recipe)] == list(saved)
    datasets.DatasetDict({"train": saved, "dev": saved}).save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(PrepareError, match="holds several splits"):
        prepare(recipe_of(tmp_path, {"path": "splits", "format": "arrow"}))
    recipe = recipe_of(tmp_path, {"path": "splits/dev", "format": "arrow"})
    assert [plain(sample) for sample in read_rows(recipe)] == list(saved)


def test_names_outside_the_saved_directory_are_refused(tmp_path: Path, saved: Any) -> None:
    state = tmp_path / "saved" / "state.json"
    state.write_text(state.read_text().replace("data-00001", "../data-00001"))
    with pytest.raises(PrepareError, match="names a file elsewhere"):
        prepare(recipe_of(tmp_path, {"path": "saved", "format": "arrow"}))


def changed_datasets(saved: Any, datasets: Any) -> Iterator[Any]:
    yield saved
    yield saved.shuffle(seed=3)
    yield saved.shuffle(seed=3).select(range(4, 20))
    yield saved.select([9, 3, 3, 49, 0])
    yield saved.select(range(20, 45))
    yield saved.select(range(20, 45)).shuffle(seed=1)
    yield saved.filter(lambda row: row["id"] % 3 == 0)
    yield saved.train_test_split(0.3, seed=1)["test"]
    yield datasets.concatenate_datasets([saved.shuffle(seed=2), saved.select(range(5))])
    yield saved.remove_columns("tags")
    yield saved.map(lambda row: {"more": row["id"] * 2})


def test_dataset_objects_give_their_rows_by_their_files(tmp_path: Path, saved: Any, datasets: Any) -> None:
    with_indices = 0
    for number, dataset in enumerate(changed_datasets(saved, datasets)):
        source = source_of(dataset, f"d{number}", indices_dir=tmp_path / "indices", ids="id")
        with_indices += "indices" in source["options"]
        recipe = recipe_of(tmp_path, source, cache_dir=str(tmp_path / f"cache{number}"))
        assert [plain(sample) for sample in read_rows(recipe)] == list(dataset)
        table = open_table(leaves(recipe)[0], recipe)
        assert table.find(str(dataset[4]["id"])).tolist()[-1] == 4
    assert with_indices == 8


def test_audio_columns_of_a_dataset_are_known_by_its_features(tmp_path: Path, datasets: Any) -> None:
    rows = [{"sound": {"bytes": wav(10 + i), "path": "x.wav"}} for i in range(5)]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    dataset = datasets.load_from_disk(str(tmp_path / "saved"))
    kinds = datasets.Features({"sound": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}})
    assert dataset.features == kinds
    sounds = dataset.cast_column("sound", datasets.Audio(decode=False))
    for given, kind in ((dataset, dict), (sounds, Media)):
        found = read_rows(recipe_of(tmp_path, source_of(given, kind.__name__)))
        assert type(found[3]["sound"]) is kind


def test_rows_that_indices_leave_out_need_no_length(tmp_path: Path, datasets: Any) -> None:
    rows = [{"n": None if i % 2 else i, "text": "x"} for i in range(20)]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    dataset = datasets.load_from_disk(str(tmp_path / "saved"))
    good = source_of(dataset.filter(lambda row: row["n"] is not None), "good", length="n")
    recipe = recipe_of(tmp_path, good)
    prepare(recipe)
    assert open_table(leaves(recipe)[0], recipe).lengths_of(np.arange(10)).tolist() == list(range(0, 20, 2))
    with pytest.raises(PrepareError, match=r"row 1: field \"n\" is not a length"):
        prepare(recipe_of(tmp_path, source_of(dataset, "all rows", length="n")))


def test_datasets_whose_rows_are_not_those_of_files_are_refused(saved: Any, datasets: Any) -> None:
    for dataset in (
        datasets.Dataset.from_dict({"a": [1, 2]}),
        saved.rename_column("id", "number"),
        saved.with_transform(lambda rows: rows),
        saved.add_column("more", list(range(50))),
    ):
        with pytest.raises(RecipeError, match="save_to_disk"):
            source_of(dataset, "d")
    with pytest.raises(RecipeError, match=r"expected +a datasets\.Dataset"):
        source_of(saved.to_iterable_dataset(), "d")


def test_ranks_share_the_rows_and_a_run_resumes_on_another_number_of_them(tmp_path: Path, by_ranges: None) -> None:
    for part in range(3):
        table = pa.table({"n": [3] * 70, "tokens": [[part, i, 7] for i in range(70)]})
        (tmp_path / f"{part}.arrow").write_bytes(stream(table, 16))
    recipe = recipe_of(tmp_path, {"length": "n"}, lanes=20, sequence="tokens", collate="pad", epochs=1)
    prepare(recipe)
    check_ranks(recipe, 210)


GOOD = pa.table({"n": range(10), "text": ["some text"] * 10})
BAD = {
    "cut short": (stream(GOOD, 5)[:-100], "is cut short"),
    "without an end": (stream(GOOD, 5)[:-8], "is cut short"),
    "file cut short": (ipc_file(GOOD, 5)[:-100], "is cut short"),
    "file of another": (ipc_file(GOOD, 5)[:-10] + b"\0\0\0\0ARROW1", "broken"),
    "no Arrow": (b"hello, world" * 20, "not a message of Arrow"),
    "empty": (b"", "is cut short"),
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


def test_a_column_that_one_file_lacks_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(stream(GOOD, 5))
    (tmp_path / "b.arrow").write_bytes(stream(GOOD.select(["n"]), 5))
    with pytest.raises(PrepareError, match=r'b\.arrow: there is no column "text"'):
        prepare(recipe_of(tmp_path, {"options": {"columns": ["n", "text"]}}), workers=1)
    with pytest.raises(DataError, match=r'b\.arrow: there is no column "text"'):
        read_rows(recipe_of(tmp_path))
    assert read_rows(recipe_of(tmp_path, {"options": {"columns": ["n"]}}), [11, 3]) == [{"n": 1}, {"n": 3}]


def test_indices_past_the_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(stream(GOOD, 5))
    (tmp_path / "rows").write_bytes(stream(pa.table({"indices": pa.array([3, 10], pa.uint64())}), 5))
    source = {"path": "a.arrow", "options": {"indices": "rows"}}
    with pytest.raises(PrepareError, match=r"rows: names a row that is in none of the files"):
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
