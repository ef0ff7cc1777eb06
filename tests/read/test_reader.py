"""Samples of a request, in order, from any shards; what is broken, changed or gone is named with row and file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from corpora import recipe_in
from deliveries import write_audio, write_tokens
from playhead.errors import DataError, SampleError, StoreError
from playhead.index.table import open_tables
from playhead.order.picks import Picks
from playhead.prepare import prepare
from playhead.read import Reader, Request
from playhead.read.substitutes import NUM_CANDIDATES, candidates
from playhead.recipe.values import Recipe
from playhead.resolve.resolve import leaves_by_stream
from small_data import write_tar


def reader_of(recipe: Recipe, **how: Any) -> Reader:
    streams = leaves_by_stream(recipe)
    tables = open_tables({leaf.path: leaf for leaves in streams for leaf in leaves}.values(), recipe)
    return Reader(recipe, [[(leaf, tables[leaf.path]) for leaf in leaves] for leaves in streams], **how)


def request(sources: list[int], rows: list[int], **fields: Any) -> Request:
    return Request(0, Picks(np.array(sources), np.zeros(len(rows), np.int64), np.array(rows)), None, **fields)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Source 0 is `calls`, tars of 5 + 4 rows; source 1 is `text`, JSONL of 6 + 3."""
    calls = {**write_audio(tmp_path, "calls", [[11, 12, 13, 14, 15], [21, 22, 23, 24]]), "length": None, "map": None}
    text = {**write_tokens(tmp_path, "text", [[1, 2, 3, 4, 5, 6], [7, 8, 9]]), "length": None}
    sources = [{key: value for key, value in source.items() if value is not None} for source in (calls, text)]
    found = recipe_in(tmp_path, *sources)
    prepare(found, workers=1)
    return found


def test_samples_come_in_the_order_asked_whatever_shard_and_source(recipe: Recipe) -> None:
    sources, rows = [1, 0, 1, 0, 0, 1, 1], [8, 5, 0, 4, 5, 6, 0]
    samples, incidents = reader_of(recipe).read(request(sources, rows))
    assert incidents == []
    names = [sample["id"] if "id" in sample else sample["txt"] for sample in samples]
    assert names == ["text-1-2", "calls 0 é", "text-0-0", "calls 4 é", "calls 0 é", "text-1-0", "text-0-0"]
    assert [len(sample["npy"]) for sample in samples if "npy" in sample] == [21, 15, 21]


def test_bytes_are_left_alone_where_nothing_is_to_be_decoded(recipe: Recipe, tmp_path: Path) -> None:
    raw = Recipe.parse({**recipe.to_dict(), "decode": False}, tmp_path)
    (sample,), _ = reader_of(raw).read(request([0], [2]))
    assert set(map(type, sample.values())) == {str, bytes}


def test_a_map_given_takes_the_place_of_the_recipe_s_and_not_of_a_source_s_own(recipe: Recipe, tmp_path: Path) -> None:
    plain = recipe.to_dict()
    plain["sources"][0]["map"] = "loader_maps:audio"
    plain["map"] = "loader_maps:nothing"
    reader = reader_of(Recipe.parse(plain, tmp_path), map_function=lambda sample: {"mine": sample["id"]})
    samples, _ = reader.read(request([0, 1], [0, 0]))
    assert set(samples[0]) == {"tokens", "text", "duration", "key"}
    assert samples[1] == {"mine": "text-0-0"}


def vanish(path: Path) -> None:
    path.unlink()


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def rot(path: Path) -> None:
    mark = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:30] + b"\0" * 30 + path.read_bytes()[60:])
    os.utime(path, ns=(mark, mark))


def test_a_row_that_is_not_what_it_was_is_named(recipe: Recipe, tmp_path: Path) -> None:
    reader = reader_of(recipe)
    rot(tmp_path / "text-000.jsonl")
    with pytest.raises(DataError, match="broken JSON") as caught:
        reader.read(request([1, 1, 0, 1], [7, 8, 0, 0]))
    assert caught.value.problem.startswith('source "text", row 0')
    assert f"{tmp_path}/text-000.jsonl" in caught.value.problem
    samples, _ = reader.read(request([1, 0], [7, 0]))  # what is whole is read as ever
    assert samples[0]["id"] == "text-1-1"


@pytest.mark.parametrize("policy", ["raise", "substitute"])
@pytest.mark.parametrize(("change", "words"), [(vanish, "no such file"), (grow, "changed since it was indexed")])
def test_a_shard_that_changed_or_is_gone_is_an_error_and_its_rows_are_not_replaced(
    recipe: Recipe, tmp_path: Path, change: Callable[[Path], None], words: str, policy: str
) -> None:
    reader = reader_of(msgspec.structs.replace(recipe, on_error=policy))
    change(tmp_path / "text-000.jsonl")
    with pytest.raises(StoreError, match=words) as caught:
        reader.read(request([1, 1, 0, 1], [7, 8, 0, 0]))
    assert f"{tmp_path}/text-000.jsonl" in caught.value.problem
    samples, incidents = reader.read(request([1, 0], [7, 0]))  # what is whole is read as ever
    assert samples[0]["id"] == "text-1-1"
    assert incidents == []


def test_a_broken_member_of_a_tar_is_named_with_row_file_and_member(recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "calls-001.tar"
    mark = path.stat().st_mtime_ns
    data = path.read_bytes()
    path.write_bytes(data.replace(b"NUMPY", b"NUMPI"))
    os.utime(path, ns=(mark, mark))
    with pytest.raises(SampleError) as caught:
        reader_of(recipe).read(request([0], [6]))
    assert caught.value.problem.startswith(f'source "calls", row 6 ({path}, byte ')
    assert 'member "npy" cannot be decoded' in caught.value.problem


DEEP = "[" * 5_000 + "]" * 5_000


def test_a_row_nested_too_deeply_is_named_with_row_and_file_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"id": 0}}\n{{"id": 1, "deep": {DEEP}}}\n{{"id": 2}}\n')
    recipe = recipe_in(tmp_path, {"name": "a", "path": "a.jsonl"})
    prepare(recipe, workers=1)
    with pytest.raises(DataError) as caught:
        reader_of(recipe).read(request([0, 0, 0], [0, 1, 2]))
    assert caught.value.problem == f'source "a", row 1: {path}, byte 10: the row is nested too deeply'
    substituting = Recipe.parse({**recipe.to_dict(), "on_error": "substitute"}, tmp_path)
    samples, (incident,) = reader_of(substituting).read(request([0, 0, 0], [0, 1, 2]))
    assert samples[1]["id"] in (0, 2)
    assert incident.row == 1


def test_a_member_nested_too_deeply_is_named_with_row_and_file(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.json", b"{}"), ("1.json", DEEP.encode())])
    recipe = recipe_in(tmp_path, {"name": "a", "path": "a.tar"})
    prepare(recipe, workers=1)
    with pytest.raises(SampleError) as caught:
        reader_of(recipe).read(request([0, 0], [0, 1]))
    assert caught.value.problem == f'source "a", row 1 ({path}, byte 1,024): member "json" cannot be decoded'
    assert caught.value.found == "it is nested too deeply"


def test_a_broken_header_of_a_tar_does_not_shift_other_rows(recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "calls-000.tar"
    mark = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes().replace(b"0001.json", b"0009.json"))  # its checksum is wrong now
    os.utime(path, ns=(mark, mark))
    reader = reader_of(recipe)
    with pytest.raises(DataError, match='source "calls", row 1'):
        reader.read(request([0, 0, 0], [0, 1, 2]))
    substituting = Recipe.parse({**recipe.to_dict(), "on_error": "substitute"}, tmp_path)
    samples, incidents = reader_of(substituting).read(request([0, 0, 0], [0, 1, 2]))
    assert [incident.row for incident in incidents] == [1]
    assert [samples[0]["txt"], samples[2]["txt"]] == ["calls 0 é", "calls 2 é"]


def test_what_stood_in_before_stands_in_again(recipe: Recipe) -> None:
    samples, incidents = reader_of(recipe).read(request([1, 1, 1], [0, 1, 2], known={1: 5, 2: None}))
    assert [sample and sample["id"] for sample in samples] == ["text-0-0", "text-0-5", None]
    assert incidents == []


def test_candidates_are_keyed_by_the_pick_and_lie_inside_the_source() -> None:
    found = [candidates(7, epoch, row, 50).tolist() for epoch in range(3) for row in range(20)]
    assert all(len(rows) == NUM_CANDIDATES and min(rows) >= 0 and max(rows) < 50 for rows in found)
    assert len({tuple(rows) for rows in found}) == 60
    assert len(set(np.concatenate(found).tolist())) == 50
    assert found[0] == candidates(7, 0, 0, 50).tolist()
    assert set(candidates(7, 0, 0, 1).tolist()) == {0}
