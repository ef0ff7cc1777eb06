"""A recipe that `fetch` wrote is prepared, verified and fetched like any other, with the store switched off."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import printed
from corpora import lengths_of
from deliveries import write_tokens
from fetch_data import bucket, delivered, near, num_files, prepared, text_values, values_over, write_data
from loopback import serving
from playhead import Recipe
from playhead.errors import PrepareError, RecipeError
from playhead.prepare import prepare
from playhead.prepare.fetch import fetch
from playhead.prepare.fetch_steps import StepsWanted
from small_data import bytes_of


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write_tokens(folder, "text", lengths_of(1, 12, 20, 30))
    return folder


@pytest.mark.parametrize("steps", [None, StepsWanted(3)])
def test_preparing_it_changes_nothing_whatever_the_format(tmp_path: Path, steps: StepsWanted | None) -> None:
    write_data(tmp_path / "data")
    with bucket(tmp_path / "data"):
        recipe = prepared(values_over("s3://data", tmp_path / "cache", epochs=None, lanes=4))
        expected = delivered(recipe, 3)
        fetch(recipe, tmp_path / "near", steps=steps)
    before = bytes_of(tmp_path / "near" / "cache")
    report = prepare(near(tmp_path / "near"), workers=1)
    assert (report.changed, [source.name for source in report.sources]) == (
        False,
        ["calls", "tarred", "shar", "web", "text"],
    )
    assert bytes_of(tmp_path / "near" / "cache") == before
    assert delivered(near(tmp_path / "near"), 3) == expected


def test_where_some_shards_were_copied_preparing_finds_the_indexes_valid_and_names_what_it_cannot_read(
    tmp_path: Path, shards: Path
) -> None:
    with bucket(shards):
        recipe = prepared(text_values("s3://data", tmp_path / "cache"))
        report = fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    assert num_files(report, "shard") < 12
    assert not prepare(near(tmp_path / "near"), workers=1).changed
    with pytest.raises(PrepareError, match=r"text-\d+.jsonl: has no copy in .*near") as caught:
        prepare(near(tmp_path / "near"), workers=1, force=True)
    assert "found     copies for steps 0 to 1\n" in str(caught.value)
    other = near(tmp_path / "near").to_dict()
    other["sources"][0]["path"] = ["s3://data/text-1*.jsonl"]
    with pytest.raises(PrepareError, match=r"what matches this pattern is not known in .*near") as caught:
        prepare(Recipe.parse(other), workers=1)
    assert "a recipe without this pattern" in str(caught.value)


def test_it_is_prepared_and_verified_with_gzip_urls_patterns_and_evaluation_sets(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_tokens(folder, "part", lengths_of(1, 3, 20, 30))
    write_tokens(folder, "val", lengths_of(2, 1, 20, 30))
    zipped = gzip.compress((folder / "part-000.jsonl").read_bytes())
    with serving({"/data/zipped.jsonl.gz": zipped}) as server:
        sources = [
            {"name": "parts", "path": f"{folder}/part-*.jsonl", "length": "n"},
            {"name": "zipped", "path": f"{server.address}/data/zipped.jsonl.gz", "length": "n"},
        ]
        source = {"name": "val", "path": f"{folder}/val-000.jsonl", "length": "n"}
        evaluation = {"val": {"sources": [source], "batching": {"type": "fixed", "size": 2}}}
        values = text_values("", tmp_path / "cache", sources=sources, evaluation=evaluation)
        recipe = prepared(values)
        fetch(recipe, tmp_path / "near")
    shutil.rmtree(folder)
    assert "nothing changed" in printed(tmp_path, "prepare", "near/recipe.yaml")
    assert not prepare(near(tmp_path / "near"), workers=1, verify=True).changed
    words = ("verify", "near/recipe.yaml", "--only", "Q1", "--steps", "2", "--workers", "0", "--world", "1")
    assert "1 of 1 passed" in printed(tmp_path, *words)


def fetched_twice(folder: Path, values: dict[str, Any], **how: Any) -> tuple[Recipe, list[Any]]:
    """A recipe whose copies were copied to `nearer`, without the store; and the batches of its first steps."""
    with bucket(folder / "data"):
        recipe = prepared(values)
        expected = delivered(recipe, 4)
        fetch(recipe, folder / "near", **how)
    shutil.rmtree(folder / "cache")
    fetch(near(folder / "near"), folder / "nearer", steps=StepsWanted(4))
    shutil.rmtree(folder / "near")
    return near(folder / "nearer"), expected


@pytest.mark.parametrize("how", [{}, {"steps": StepsWanted(9)}])
def test_copies_are_copied_on_without_the_store(tmp_path: Path, how: dict[str, Any]) -> None:
    write_data(tmp_path / "data")
    values = values_over("s3://data", tmp_path / "cache", epochs=None, lanes=4)
    nearer, expected = fetched_twice(tmp_path, values, **how)
    assert delivered(nearer, 4) == expected
    assert not prepare(nearer, workers=1).changed


def test_sidecars_are_copied_on_and_manifests_alone_are_refused(tmp_path: Path, shards: Path) -> None:
    recipe = Recipe.parse(text_values(str(shards), tmp_path / "cache"))
    prepare(recipe, workers=1, sidecars=True)
    first = fetch(recipe, tmp_path / "near", steps=StepsWanted(40), indexes=True)
    bare = fetch(recipe, tmp_path / "bare", steps=StepsWanted(40))
    shutil.rmtree(shards)
    for fetched, outcome in ((first, "copied"), (bare, "missing")):
        again = fetch(Recipe.load(fetched.recipe), tmp_path / "nearer", steps=StepsWanted(40), indexes=True)
        assert {file.outcome for file in again.files if file.kind == "index"} == {outcome}
    with pytest.raises(RecipeError, match="manifests alone cannot be copied"):
        fetch(near(tmp_path / "near"), tmp_path / "none", manifests=True)


def test_steps_that_were_not_copied_cannot_be_copied_on(tmp_path: Path, shards: Path) -> None:
    with bucket(shards):
        recipe = prepared(text_values("s3://data", tmp_path / "cache"))
        fetch(recipe, tmp_path / "near", steps=StepsWanted(2))
    with pytest.raises(PrepareError, match=r"has no copy in .*near") as caught:
        fetch(near(tmp_path / "near"), tmp_path / "nearer", steps=StepsWanted(40))
    assert "copies for steps 0 to 1" in str(caught.value)
