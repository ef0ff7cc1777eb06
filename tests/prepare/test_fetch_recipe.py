"""The recipe that is written beside copies replaces none of the user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playhead import Recipe, RecipeError
from playhead.prepare import prepare
from playhead.prepare.fetch import fetch
from playhead.prepare.fetch_steps import StepsWanted
from playhead.store.copies import load_copies
from small_data import bytes_of, write_jsonl


def prepared(folder: Path, name: str = "text", **fields: Any) -> Recipe:
    path = folder / "data" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        write_jsonl(path, [{"id": f"{name}-{i}", "n": 2} for i in range(9)])
    source = {"name": name, "path": str(path), "length": "n"}
    values = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "cache_dir": str(folder / "cache")}
    recipe = Recipe.parse({**values, **fields})
    prepare(recipe, workers=1)
    return recipe


@pytest.mark.parametrize("how", [{}, {"steps": StepsWanted(2)}, {"manifests": True}, {"dry_run": True}])
@pytest.mark.parametrize("after_a_fetch", [False, True])
def test_a_recipe_of_the_user_is_neither_replaced_nor_joined_by_copies(
    tmp_path: Path, how: dict[str, Any], after_a_fetch: bool
) -> None:
    recipe = prepared(tmp_path)
    near = tmp_path / "near"
    near.mkdir()
    if after_a_fetch:
        fetch(recipe, near, steps=StepsWanted(1))
    (near / "recipe.yaml").write_text(json.dumps(prepared(tmp_path, seed=5).to_dict()))
    before = bytes_of(near)
    with pytest.raises(RecipeError, match="would be replaced") as caught:
        fetch(recipe, near, **how)
    assert str(near / "recipe.yaml") in str(caught.value)
    assert "name another directory" in str(caught.value)
    assert bytes_of(near) == before


def test_the_recipe_of_an_earlier_fetch_is_replaced_also_after_changes_of_the_recipe(tmp_path: Path) -> None:
    recipe, near = prepared(tmp_path), tmp_path / "near"
    fetch(recipe, near, indexes=True)
    fetch(recipe, near, steps=StepsWanted(2))
    fetch(recipe, near, steps=StepsWanted(2, first=2))
    assert len(load_copies(str(near)).recipes) == 1
    with_more = prepared(tmp_path, seed=9, batching={"type": "fixed", "size": 3}, on_error="substitute")
    fetch(with_more, near)
    assert Recipe.load(near / "recipe.yaml").seed == 9
    (tmp_path / "data" / "text.jsonl").rename(tmp_path / "data" / "moved.jsonl")
    moved = {**recipe.to_dict()["sources"][0], "path": str(tmp_path / "data" / "moved.jsonl")}
    fetch(prepared(tmp_path, sources=[moved]), near)
    assert Recipe.load(near / "recipe.yaml").seed == 0


def test_the_recipe_of_a_fetch_of_other_sources_is_kept(tmp_path: Path) -> None:
    near = tmp_path / "near"
    fetch(prepared(tmp_path), near)
    before = bytes_of(near)
    with pytest.raises(RecipeError, match=r"near/recipe.yaml: is for another recipe") as caught:
        fetch(prepared(tmp_path, "notes"), near)
    assert "sources text" in str(caught.value)
    assert bytes_of(near) == before


def test_a_kill_before_the_recipe_is_replaced_leaves_it_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = tmp_path / "near"
    fetch(prepared(tmp_path), near)
    before = (near / "recipe.yaml").read_bytes()

    class Killed(BaseException):
        pass

    def killed(path: Path) -> None:
        raise Killed

    for seed in (1, 2):
        recipe = prepared(tmp_path, seed=seed)
        with monkeypatch.context() as patched:
            patched.setattr("playhead.prepare.fetch_recipe.replacing", killed)
            with pytest.raises(Killed):
                fetch(recipe, near)
        assert (near / "recipe.yaml").read_bytes() == before
    fetch(prepared(tmp_path, seed=3), near)
    assert Recipe.load(near / "recipe.yaml").seed == 3


def test_a_recipe_is_not_fetched_to_the_directory_that_it_reads(tmp_path: Path) -> None:
    fetch(prepared(tmp_path), tmp_path / "near")
    near = Recipe.load(tmp_path / "near" / "recipe.yaml")
    with pytest.raises(RecipeError, match="holds the copies that this recipe reads"):
        fetch(near, tmp_path / "near")
