"""Opening a plan: what is missing or changed is named, with the remedy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from corpora import lengths_of, prepared, recipe_in, take, write_text
from playhead import Loader
from playhead.errors import NotPreparedError, StoreError
from playhead.recipe.values import Recipe
from playhead.resolve import open_plan


def recipe_of(folder: Path, **fields: object) -> Recipe:
    a = write_text(folder, "a", lengths_of(1, 3, 20))
    b = {**write_text(folder, "b", lengths_of(2, 1, 20)), "keep": {"lang": ["en"]}}
    return recipe_in(folder, {**a, **fields}, b)


def test_an_unprepared_recipe_names_the_command(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    with pytest.raises(NotPreparedError) as caught:
        open_plan(recipe)
    assert caught.value.problem.startswith('sources[0] "a" is not prepared')
    assert "playhead prepare" in str(caught.value.fix)
    assert not (tmp_path / ".playhead").exists()  # opening builds nothing


@pytest.mark.parametrize("change", [{"length": "m"}, {"columns": ["n"]}, {"keep": {"lang": ["pl"]}}, {"ids": "id"}])
def test_a_recipe_that_asks_for_more_than_was_prepared_names_the_command(tmp_path: Path, change: dict) -> None:
    prepared(recipe_of(tmp_path))
    with pytest.raises(NotPreparedError, match="playhead prepare"):
        open_plan(recipe_of(tmp_path, **change))


def test_a_lost_selection_or_index_names_the_command(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    prepared(recipe)
    (selection,) = tmp_path.glob(".playhead/b-*/selection-*")
    shutil.rmtree(selection)
    with pytest.raises(NotPreparedError, match=r'sources\[1\] "b" is not prepared'):
        open_plan(recipe)
    prepared(recipe)
    (index,) = tmp_path.glob(".playhead/a-*/meta.json")
    index.write_text("{}")
    with pytest.raises(NotPreparedError, match=r'sources\[0\] "a" is not prepared'):
        open_plan(recipe)


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"n": 3}\n')


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def replace_same_size(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(2, 2))


@pytest.mark.parametrize("change", [grow, touch, replace_same_size, Path.unlink])
def test_a_plan_is_opened_without_the_files_and_reading_a_changed_one_names_it(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    recipe = msgspec.structs.replace(recipe_of(tmp_path), sequence=None, collate="list")
    prepared(recipe)
    plan = open_plan(recipe)
    change(tmp_path / "a-001.jsonl")
    assert open_plan(recipe).fingerprint == plan.fingerprint
    with pytest.raises(StoreError) as caught:
        list(zip(Loader(recipe), range(200), strict=False))
    assert str(tmp_path / "a-001.jsonl") in caught.value.problem
    assert "playhead prepare" in str(caught.value.fix)


def test_only_the_sources_of_the_stream_asked_for_are_opened(tmp_path: Path) -> None:
    dev = {"sources": [write_text(tmp_path, "d", [[5] * 6])], "batching": {"type": "fixed", "size": 2}}
    recipe = recipe_in(tmp_path, write_text(tmp_path, "a", [[5] * 6]), evaluation={"dev": dev}, epochs=1)
    prepared(recipe)
    (index,) = tmp_path.glob(".playhead/d-*/meta.json")
    index.unlink()
    assert len(take(open_plan(recipe))) == 2
    with pytest.raises(NotPreparedError, match='"d" is not prepared'):
        open_plan(recipe, "dev")
