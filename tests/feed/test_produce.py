"""Batches as recipes ask for them: shapes, fields, the user's own collation, and errors that name the samples."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader_maps
from deliveries import BATCHINGS, SPEECH_RATE, stream, write_tokens
from playhead import Batch, Loader, Recipe, RecipeError, SampleError
from playhead.prepare import prepare
from small_data import write_jsonl

BUCKETS = {"type": "bucket", "edges": [16, 32, 64], "size": [6, 4, 2]}


def batches(recipe: Recipe, count: int = 30, **how: Any) -> list[Batch]:
    return [*islice(Loader(recipe, **how), count)]


def lengths(batch: Batch) -> list[int]:
    return [int(n) for n in batch["n"][: batch.num_samples]]


def test_batches_are_padded_to_their_longest_sample(tmp_path: Path) -> None:
    for batch in batches(stream(tmp_path, "bucket")):
        assert batch["tokens"].shape == batch["labels"].shape == (batch.num_samples, max(lengths(batch)))
        assert batch["tokens_lengths"].tolist() == lengths(batch)


def test_batches_are_padded_to_the_edge_of_their_bucket_and_to_its_size(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "bucket", batching=BUCKETS, pad_to="bucket", pad_batch=True)
    shapes = {}
    for batch in batches(recipe):
        edge = min(edge for edge in (16, 32, 64) if edge >= max(lengths(batch)))
        assert batch["tokens"].shape == ({16: 6, 32: 4, 64: 2}[edge], edge)
        assert batch["weights"].sum() == batch.num_samples
        assert batch["tokens_lengths"].tolist()[: batch.num_samples] == lengths(batch)
        shapes[edge] = batch["tokens"].shape
    assert len(shapes) > 1


def test_a_bucket_in_seconds_is_padded_in_steps_of_the_sequence(tmp_path: Path) -> None:
    batching = {"type": "bucket", "edges": [0.6, 1.25], "size": 3}
    recipe = stream(tmp_path, "tar", batching=batching, pad_to="bucket")
    widths = {batch["tokens"].shape[1] for batch in batches(recipe)}
    assert widths == {int(0.6 * SPEECH_RATE), int(1.25 * SPEECH_RATE)}


def test_batches_are_padded_to_a_given_length_and_size(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes", pad_to=70, pad_batch=True, pad_values={"labels": -100}, epochs=1)
    found = batches(recipe)
    assert {batch["tokens"].shape for batch in found} == {(3, 70)}
    assert min(batch.num_samples for batch in found) < 3
    assert all((batch["labels"][~batch["labels_mask"]] == -100).all() for batch in found)


def test_a_length_that_does_not_fit_pad_to_names_rows_files_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(SampleError) as caught:
        batches(stream(tmp_path, "fixed", pad_to=40))
    letter = str(caught.value)
    assert 'field "tokens" is longer than `pad_to` allows' in letter
    assert "step 0, lane " in letter
    assert f" ({tmp_path}/text-00" in letter
    assert "raise `pad_to`" in str(caught.value.fix)


def test_only_the_fields_named_are_delivered(tmp_path: Path) -> None:
    (batch,) = batches(stream(tmp_path, "fixed", fields=["tokens", "id"]), 1)
    assert set(batch) == {"tokens", "tokens_lengths", "tokens_mask", "id", "weights"}
    assert len(batch) == 5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_field_missing_in_some_samples_names_the_field_rows_and_remedy(tmp_path: Path, workers: int) -> None:
    a = write_tokens(tmp_path, "a", [[3] * 20])
    (tmp_path / "b-000.jsonl").write_text('{"n": 2, "tokens": [1, 2]}\n' * 20)
    b = {"name": "b", "path": "b-*.jsonl", "length": "n"}
    recipe = Recipe.parse({"sources": [a, b], "batching": {"type": "fixed", "size": 8}}, tmp_path)
    prepare(recipe, workers=1)
    with pytest.raises(SampleError) as caught:
        batches(recipe, workers=workers, worker_kind="thread")
    assert 'field "id" is in some samples of the micro-batch and not in others' in caught.value.problem
    assert re.search(rf"step \d+, lane 0: .*b row \d+ \({tmp_path}/b-000.jsonl, byte \d+\)", caught.value.problem)
    assert "fields: [...]" in str(caught.value.fix)


def test_a_collate_function_is_given_the_samples_and_gives_the_batch(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "fixed", collate="loader_maps:ids_only")
    (batch,) = batches(recipe, 1)
    assert list(batch) == ["ids"]
    assert len(batch["ids"]) == 3
    (same,) = batches(recipe, 1, collate=loader_maps.count_them)  # one given here takes the place of the recipe's
    assert dict(same) == {"batch": 3}
    assert same.rows.tolist() == batch.rows.tolist()


def test_samples_may_be_left_as_a_list(tmp_path: Path) -> None:
    (batch,) = batches(stream(tmp_path, "fixed", collate="list"), 1)
    assert [sample["n"] for sample in batch["samples"]] == [len(sample["tokens"]) for sample in batch["samples"]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_that_raises_is_named_with_its_line_and_the_rows(tmp_path: Path, workers: int) -> None:
    recipe = stream(tmp_path, "fixed", collate="loader_maps:bad_collate")
    with pytest.raises(SampleError) as caught:
        batches(recipe, workers=workers)
    lines = Path(loader_maps.__file__).read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "no such field" in line)
    assert "the collate function loader_maps:bad_collate raised KeyError: 'no such field'" in caught.value.problem
    assert re.search(rf"step 0, lane 0: .*text row \d+ \({tmp_path}/text-00\d.jsonl, byte ", caught.value.problem)
    assert caught.value.found == f"in {loader_maps.__file__}, line {number}, in bad_collate"


def test_a_collate_function_that_returns_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="the collate function loader_maps:nothing returned None"):
        batches(stream(tmp_path, "fixed", collate="loader_maps:nothing"))


def test_a_batch_of_a_user_s_own_making_is_left_as_it_is_when_idle(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes", epochs=1, collate="list")
    weights = [1.0]
    found = batches(recipe, 99, collate=lambda samples: {"weights": weights, "n": len(samples)})
    assert any(batch.idle for batch in found)
    assert weights == [1.0]


def test_every_slot_says_which_sample_was_planned_there(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "pack")
    rows = {}
    for name in ("text", "more"):
        files = sorted(tmp_path.glob(f"{name}-*.jsonl"))
        rows[name] = [
            f"{name}-{i}-{j}" for i, file in enumerate(files) for j in range(len(file.read_text().split("\n")) - 1)
        ]
    for batch in batches(recipe, 20):
        assert batch["id"] == [rows[name][row] for name, row in zip(batch.sources, batch.rows.tolist(), strict=True)]
        assert len(batch["cu_seqlens"]) == len(batch.rows) + 1
        assert np.diff(batch["cu_seqlens"]).tolist() == batch["n"].tolist()
        assert len(batch["tokens"]) == BATCHINGS["pack"]["max_length"]


def hashes(folder: Path, **fields: Any) -> Recipe:
    """Rows with hashes of 64 bits, none of which a float64 can hold, and one small number."""
    values = [3 if i == 40 else (i * 0x9E3779B97F4A7C15 | 1) % 2**64 for i in range(64)]
    rows = [{"id": i, "doc_hash": value, "parts": [value, i]} for i, value in enumerate(values)]
    write_jsonl(folder / "a.jsonl", rows)
    recipe = {"sources": [{"name": "a", "path": "a.jsonl"}], "batching": {"type": "fixed", "size": 4}, "epochs": 1}
    found = Recipe.parse({**recipe, **fields}, folder)
    prepare(found, workers=1)
    return found


def test_declared_hashes_of_64_bits_are_delivered_as_they_are(tmp_path: Path) -> None:
    recipe = hashes(tmp_path, dtypes={"doc_hash": "uint64", "parts": "uint64"})
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    for batch in batches(recipe, 99):
        assert batch["doc_hash"].dtype == batch["parts"].dtype == np.uint64
        assert batch["doc_hash"].tolist() == [rows[i]["doc_hash"] for i in batch["id"].tolist()]
        assert batch["parts"].tolist() == [rows[i]["parts"] for i in batch["id"].tolist()]


@pytest.mark.parametrize("field", ["doc_hash", "parts"])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_undeclared_hash_beyond_int64_names_field_row_file_and_remedy(
    tmp_path: Path, field: str, workers: int
) -> None:
    recipe = hashes(tmp_path, fields=["id", field])
    with pytest.raises(SampleError) as caught:
        batches(recipe, 99, workers=workers)
    error = caught.value
    place = rf'source "a", row (\d+) \({tmp_path}/a.jsonl, byte [\d,]+\): '
    named = re.match(rf'{place}field "{field}" holds a whole number beyond int64', error.problem)
    assert named is not None
    row = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[int(named[1])])
    assert str(error.found) == str(row["doc_hash"])
    assert f"`dtypes: {{{field}: uint64}}`" in str(error.fix)


def test_the_row_named_is_the_one_that_stands_in_for_a_bad_one(tmp_path: Path) -> None:
    """Rows 0 to 7 fail; whatever stands in has a number that does not fit."""
    write_jsonl(tmp_path / "a.jsonl", [{"id": i, "n": 2**63 + i} for i in range(64)])
    sources = [{"name": "a", "path": "a.jsonl", "shuffle": "none"}]
    values = {"sources": sources, "batching": {"type": "fixed", "size": 4}, "on_error": "substitute", "max_bad": 1}
    recipe = Recipe.parse(values, tmp_path)
    prepare(recipe, workers=1)

    def picky(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] < 8:
            raise ValueError("no good")
        return sample

    with pytest.raises(SampleError) as caught:
        batches(recipe, 1, map=picky)
    number = int(str(caught.value.found)) - 2**63
    assert caught.value.problem.startswith(f'source "a", row {number} (')


@pytest.mark.parametrize("key", ["pad_values", "dtypes"])
def test_a_name_that_no_sample_has_is_refused_with_those_there_are(tmp_path: Path, key: str) -> None:
    recipe = stream(tmp_path, "fixed", **{key: {"lables": 1 if key == "pad_values" else "int32"}})
    with pytest.raises(RecipeError) as caught:
        batches(recipe, 1)
    assert caught.value.problem == f'{key}.lables: no sample has a field "lables"'
    assert str(caught.value.found).startswith("fields: n, id, tokens, labels")
    assert str(caught.value.fix).startswith("did you mean `labels`?")


def test_a_name_may_be_that_of_another_sub_stream_or_evaluation_set(tmp_path: Path) -> None:
    """`duration` is in the speech of the stream only, `labels` in its text only, `reference` in the set only."""
    (tmp_path / "dev.jsonl").write_text('{"tokens": [1], "reference": 5}\n' * 4)
    source = {"name": "dev", "path": "dev.jsonl", "map": "loader_maps:slow"}
    dev = {"sources": [source], "batching": {"type": "fixed", "size": 2}}
    dtypes = {"duration": "float32", "labels": "int16", "reference": "uint8"}
    recipe = stream(tmp_path, "zip", dtypes=dtypes, evaluation={"dev": dev})
    found = batches(recipe, 4)
    assert {batch[name].dtype for batch in found for name in ("duration", "labels") if name in batch} == {
        np.dtype("float32"),
        np.dtype("int16"),
    }
    assert {batch["reference"].dtype for batch in batches(recipe, 2, split="dev")} == {np.dtype("uint8")}
    with pytest.raises(RecipeError, match=r"dtypes\.durations: no sample has"):
        batches(Recipe.parse({**recipe.to_dict(), "dtypes": {**dtypes, "durations": "int8"}}, tmp_path), 1)
