"""Lengths made of terms: seconds of headers, steps of audio, tokens, characters, and sums of them."""

from __future__ import annotations

import io
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from format_worlds import check_worlds
from formats.test_tokens import write_tokenizer
from playhead import Loader, PrepareError, Recipe, RecipeError, SampleError
from playhead.prepare import prepare
from playhead.store import CountingFiles, all_files
from small_data import all_lengths, bytes_of, table_of, write_jsonl, write_tar

RATE = 8_000
PER_SECOND = 12.5
CONTAINERS = [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III"), ("WAV", "FLOAT")]


def recording(i: int) -> bytes:
    """From 0.5 s on, of several kinds."""
    container, subtype = CONTAINERS[i % len(CONTAINERS)]
    file = io.BytesIO()
    noise = np.random.default_rng(i).uniform(-0.3, 0.3, 4_000 + 777 * i)
    soundfile.write(file, noise, RATE, format=container, subtype=subtype)
    return file.getvalue()


def seconds_of(data: bytes) -> float:
    found, rate = soundfile.read(io.BytesIO(data))
    return len(found) / rate


def milliseconds(seconds: float) -> int:
    return ceil(seconds * 1000 - 1e-6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(20):
        (tmp_path / f"{i}.audio").write_bytes(recording(i))
    return tmp_path


def manifest(folder: Path, path: str, numbers: range, durations: bool = False) -> list[dict[str, Any]]:
    rows = [{"audio_filepath": f"{i}.audio", "text": f"the words of {i} " * (i % 3), "number": i} for i in numbers]
    if durations:
        for row in rows[::2]:
            row["duration"] = round(seconds_of(recording(row["number"])), 3)
    write_jsonl(folder / path, rows)
    return rows


def recipe_in(folder: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    values = {"sources": [{"name": "s", "shuffle": "none", **source}], "batching": {"type": "fixed", "size": 2}}
    return Recipe.parse({**values, "lanes": 1, "epochs": 1, "audio": {"sample_rate": RATE}, **fields}, folder)


def prepared(folder: Path, source: dict[str, Any], **fields: Any) -> Recipe:
    recipe = recipe_in(folder, source, **fields)
    prepare(recipe, workers=1)
    return recipe


def test_durations_that_a_manifest_lacks_are_read_from_headers(folder: Path) -> None:
    manifest(folder, "a.json", range(20), durations=True)
    recipe = prepared(folder, {"format": "nemo", "path": "a.json"}, fields=["audio", "number"])
    expected = [milliseconds(seconds_of(recording(i))) for i in range(20)]
    assert all(abs(found - wanted) <= 1 for found, wanted in zip(all_lengths(table_of(recipe)), expected, strict=True))
    for batch in Loader(recipe):
        sizes = [round(seconds_of(recording(int(i))) * RATE) for i in batch["number"]]
        np.testing.assert_allclose(batch["audio_lengths"], sizes, atol=8)


def test_a_segment_is_as_long_as_the_rest_of_its_recording(folder: Path) -> None:
    write_jsonl(folder / "a.json", [{"audio_filepath": "0.audio", "offset": 0.1}, {"audio_filepath": "0.audio"}])
    recipe = prepared(folder, {"format": "nemo", "path": "a.json"}, fields=["audio"])
    assert all_lengths(table_of(recipe)) == [400, 500]


def test_only_the_headers_of_new_files_are_read(folder: Path) -> None:
    manifest(folder, "a.json", range(16))
    recipe = recipe_in(folder, {"format": "nemo", "path": "*.json"})
    prepare(recipe, workers=1)
    manifest(folder, "b.json", range(16, 20))
    files = CountingFiles(all_files(recipe.cache_dir, "write"))
    prepare(recipe, workers=1, files=files)
    assert all_lengths(table_of(recipe)) == [milliseconds(seconds_of(recording(i))) for i in range(20)]
    assert files.counts["stamp"] < 16
    once = files.counts["read"]
    prepare(recipe, workers=1, files=files)
    assert files.counts["read"] == once


def test_the_index_does_not_depend_on_workers(folder: Path) -> None:
    manifest(folder, "a.json", range(20))
    one = prepared(folder, {"format": "nemo", "path": "a.json"}, cache_dir="one")
    two = recipe_in(folder, {"format": "nemo", "path": "a.json"}, cache_dir="two")
    prepare(two, workers=2, processes=True)
    assert bytes_of(Path(one.cache_dir)) == bytes_of(Path(two.cache_dir))


def test_a_recording_that_is_missing_is_named_with_its_row(folder: Path) -> None:
    manifest(folder, "a.json", range(3))
    (folder / "1.audio").unlink()
    with pytest.raises(PrepareError, match=r"1\.audio: no such file") as caught:
        prepared(folder, {"format": "nemo", "path": "a.json"})
    assert 'source "s", raw row 1' in str(caught.value)
    assert "a.json, byte" in str(caught.value)


SUM = {"sum": [{"field": "text", "tokenizer": "tokenizer.json"}, {"audio": "audio", "per_second": PER_SECOND}]}


def expected_sum(tokenizer: Any, text: str, data: bytes) -> int:
    return len(tokenizer.encode(text).ids) + ceil(milliseconds(seconds_of(data)) * PER_SECOND / 1000 - 1e-6)


def test_every_format_adds_up_the_same_terms(folder: Path) -> None:
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    rows = manifest(folder, "rows.json", range(20))
    data = [recording(row["number"]) for row in rows]
    expected = [expected_sum(tokenizer, row["text"], each) for row, each in zip(rows, data, strict=True)]
    write_jsonl(folder / "rows.jsonl", rows)
    write_tar(
        folder / "rows.tar",
        [
            member
            for i, (row, each) in enumerate(zip(rows, data, strict=True))
            for member in ((f"{i:03}.flac", each), (f"{i:03}.txt", row["text"].encode()))
        ],
    )
    table = pa.table({"text": [row["text"] for row in rows], "audio": data})
    pq.write_table(table, folder / "rows.parquet", row_group_size=6)
    tar_sum = {"sum": [{**SUM["sum"][0], "field": "txt"}, {**SUM["sum"][1], "audio": "flac"}]}
    sources: list[dict[str, Any]] = [
        {"format": "nemo", "path": "rows.json", "length": SUM},
        {"path": "rows.jsonl", "length": SUM, "options": {"media": {"audio": {"path": "audio_filepath"}}}},
        {"path": "rows.tar", "length": tar_sum},
        {"path": "rows.parquet", "length": SUM, "options": {"audio": ["audio"]}},
    ]
    for source in sources:
        recipe = prepared(folder, source, sequence=None, fields=["text"] if source is not sources[2] else ["txt"])
        assert all_lengths(table_of(recipe)) == expected, source
        assert sum(batch.num_samples for batch in Loader(recipe)) == 20


def test_terms_of_fields_take_no_header(folder: Path) -> None:
    rows = [{"words": "a" * (i % 7), "duration": i / 7, "n": i} for i in range(30)]
    write_jsonl(folder / "a.jsonl", rows)
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in rows[0]}), folder / "a.parquet")
    length = {
        "sum": [{"field": "n"}, {"field": "words", "unit": "characters"}, {"field": "duration", "per_second": 50}]
    }
    expected = [row["n"] + len(row["words"]) + ceil(milliseconds(row["duration"]) * 50 / 1000 - 1e-6) for row in rows]
    for path in ("a.jsonl", "a.parquet"):
        recipe = prepared(folder, {"path": path, "length": length}, sequence=None)
        assert all_lengths(table_of(recipe)) == expected
        assert sum(batch.num_samples for batch in Loader(recipe)) == 30


def test_what_is_delivered_is_counted_again(folder: Path) -> None:
    write_tokenizer(folder / "tokenizer.json")
    manifest(folder, "a.json", range(20))
    source = {"format": "nemo", "path": "a.json", "length": SUM}
    recipe = prepared(folder, source, sequence=None, fields=["audio", "number"])
    (folder / "4.audio").write_bytes(recording(14))  # longer than planned
    with pytest.raises(SampleError, match="is not as long as planned") as caught:
        list(Loader(recipe))
    assert "counted by the terms of `length`" in caught.value.found
    assert 'source "s", row 4' in str(caught.value)
    substituting = Recipe.parse({**recipe.to_dict(), "on_length_mismatch": "substitute", "sequence": "audio"}, folder)
    batches = list(Loader(substituting))
    assert sum(batch.num_samples for batch in batches) == 20
    assert 4 not in [int(number) for batch in batches for number in batch["number"]]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "text", "text_jsonl", "webdataset"])
def test_the_characters_of_what_is_delivered_are_counted_again(tmp_path: Path, kind: str) -> None:
    texts = [f"zażółć {i} " * i for i in range(9)]
    source: dict[str, Any] = {"path": f"a.{kind}", "format": kind, "length": {"field": "text", "unit": "characters"}}
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts, "n": range(9)}), tmp_path / "a.parquet")
    elif kind == "webdataset":
        write_tar(tmp_path / "a.webdataset", [(f"{i}.txt", text.encode()) for i, text in enumerate(texts)])
        source["length"] = {"field": "txt", "unit": "characters"}
    elif kind == "text":
        (tmp_path / "a.text").write_text("".join(f"{text}\n" for text in texts))
    else:
        write_jsonl(tmp_path / f"a.{kind}", [{"text": "other", "body": text} for text in texts])
        source["length"] = {"field": "text" if kind == "text_jsonl" else "body", "unit": "characters"}
        source["options"] = {"field": "body"} if kind == "text_jsonl" else {}
    recipe = prepared(tmp_path, source, sequence=None, collate="list")
    assert all_lengths(table_of(recipe)) == list(map(len, texts))
    assert sum(batch.num_samples for batch in Loader(recipe)) == 9
    lengths = np.lib.format.open_memmap(table_of(recipe).index.array_path("lengths"), "r+")
    lengths[4] += 1
    lengths.flush()
    with pytest.raises(SampleError, match="is not as long as planned") as caught:
        list(Loader(recipe))
    assert 'source "s", row 4' in str(caught.value)
    assert f"{len(texts[4]):,} characters" in caught.value.found
    assert f"{len(texts[4]) + 1:,}" in caught.value.expected


def test_characters_of_a_field_that_is_not_delivered_as_text_are_taken_on_trust(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "bc"], "n": [1, 2]}), tmp_path / "a.parquet")
    write_tar(tmp_path / "a.tar", [("0.txt", b"a"), ("1.txt", b"bc")])
    sources = [
        ({"path": "a.parquet", "options": {"columns": ["n"]}, "length": {"field": "text", "unit": "characters"}}, {}),
        ({"path": "a.tar", "length": {"field": "txt", "unit": "characters"}}, {"decode": False}),
    ]
    for source, fields in sources:
        recipe = prepared(tmp_path, source, sequence=None, collate="list", **fields)
        assert all_lengths(table_of(recipe)) == [1, 2]
        assert sum(batch.num_samples for batch in Loader(recipe)) == 2


def test_audio_a_little_longer_than_its_row_says_is_cut_to_it(folder: Path) -> None:
    rows = [{"audio": "0.audio", "duration": 0.45}, {"audio": "0.audio", "duration": 0.5}]
    write_jsonl(folder / "a.jsonl", rows)
    length = {"field": "duration", "audio": "audio", "per_second": 100}
    source = {"path": "a.jsonl", "length": length, "options": {"media": {"audio": {"path": "audio"}}}}
    recipe = prepared(folder, source, sequence=None, fields=["audio"])
    assert all_lengths(table_of(recipe)) == [45, 50]
    (batch,) = list(Loader(recipe))
    assert batch["audio_lengths"].tolist() == [3_600, 4_000]


def test_steps_of_augmented_audio_are_planned_at_most_and_shorter_passes(folder: Path) -> None:
    manifest(folder, "a.json", range(20), durations=True)
    source = {"format": "nemo", "path": "a.json", "length": {"field": "duration", "per_second": 50}}
    augment = [{"type": "crop", "seconds": 1.0}, {"type": "speed", "factors": [0.8, 1.2]}]
    recipe = prepared(folder, source, augment=augment, sequence=None, fields=["audio"], lanes=20, epochs=4)
    planned = all_lengths(table_of(recipe))
    whole = [milliseconds(seconds_of(recording(i))) for i in range(20)]
    cropped = [min(length, 1000) for length in whole]
    assert all(abs(steps - length * 50 / 800) <= 1.2 for steps, length in zip(planned, cropped, strict=True))
    check_worlds(recipe, 80)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=9), st.sampled_from([None, 0.1, 12.5, 50.0]))
def test_seconds_at_once_are_those_one_by_one(values, per_second):
    from playhead.formats.lengths import all_planned_seconds, planned_seconds
    from playhead.recipe.augments import Crop, Speed
    from playhead.recipe.values import Length

    length = Length(field="d", unit="seconds") if per_second is None else Length(field="d", per_second=per_second)
    for changes in ((), (Crop(seconds=1.5), Speed(factors=[0.9, 1.1]))):
        found = all_planned_seconds(np.array(values), length, changes)
        assert found is not None
        assert found.tolist() == [planned_seconds(value, length, "d", changes) for value in values]


BAD = {
    "sum and field": ({"field": "n", "sum": [{"field": "m"}]}, "has both `sum` and `field`"),
    "a sum of sums": ({"sum": [{"sum": [{"field": "n"}]}]}, "cannot be a term of a sum"),
    "a measured term": ({"sum": [{"measure": True}]}, "cannot be a term of a sum"),
    "seconds and tokens": (
        {"sum": [{"field": "n"}, {"field": "d", "unit": "seconds"}]},
        "the terms of a sum need one unit",
    ),
    "steps of nothing": ({"per_second": 5}, "needs seconds to count"),
    "steps of bytes": ({"field": "n", "unit": "bytes", "per_second": 5}, "turns seconds into a number of steps"),
    "audio in tokens": ({"audio": "wav"}, "audio has seconds"),
    "an image without patches": ({"image": "jpg"}, "`image` without `patch`"),
    "patches without an image": ({"field": "n", "patch": 14}, "`patch` without `image`"),
    "an image and a field": ({"image": "jpg", "patch": 14, "field": "n"}, "has a length in patches alone"),
    "audio and a function": ({"audio": "wav", "unit": "seconds", "function": "m:f"}, "has both `audio` and `function`"),
}


@pytest.mark.parametrize("name", BAD)
def test_terms_that_make_no_sense_are_refused_where_they_stand(name: str, tmp_path: Path) -> None:
    length, problem = BAD[name]
    with pytest.raises(RecipeError, match=r"sources\[0\]\.length") as caught:
        recipe_in(tmp_path, {"path": "a.jsonl", "length": length})
    assert problem in str(caught.value) or problem in str(caught.value.found)


def test_what_has_terms_cannot_be_cut(tmp_path: Path) -> None:
    for length in ({"field": "d", "per_second": 5}, {"field": "text", "unit": "characters"}):
        for fields in (
            {"on_length_mismatch": "truncate"},
            {"batching": {"type": "pack", "max_length": 9, "overlong": "truncate"}},
        ):
            with pytest.raises(RecipeError, match="a length of terms, or of characters, cannot be used to truncate"):
                recipe_in(tmp_path, {"path": "a.jsonl", "length": length}, **fields)


def test_a_row_that_says_no_seconds_and_has_no_audio_is_named(folder: Path) -> None:
    write_jsonl(folder / "a.jsonl", [{"audio": "0.audio"}, {"other": 1}])
    length = {"audio": "audio", "unit": "seconds"}
    source = {"path": "a.jsonl", "length": length, "options": {"media": {"audio": {"path": "audio"}}}}
    with pytest.raises(PrepareError, match=r'field "audio"') as caught:
        prepared(folder, source)
    assert f"{folder / 'a.jsonl'}, byte 21" in str(caught.value)
