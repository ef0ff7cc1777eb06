from __future__ import annotations

import sys

import pytest

from playhead import Recipe, RecipeError
from playhead.recipe.imports import resolve_function
from recipe.recipes import recipe, source


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A recipe's directory, with a module of the user's; sys.path is put back afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_lengths.py").write_text("def count(sample):\n    return 3\n\nLIMIT = 7\n")
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    (tmp_path / "my_hungry.py").write_text("import no_such_package\n")
    Recipe.parse(recipe(source(length={"function": "my_lengths:count"})), tmp_path)
    yield tmp_path
    for name in ("my_lengths", "my_broken", "my_hungry"):
        sys.modules.pop(name, None)


def test_a_function_beside_the_recipe_is_found(beside):
    assert resolve_function("my_lengths:count")({}) == 3


def test_modules_beside_the_recipe_shadow_nothing_installed(beside):
    (beside / "colorsys.py").write_text("rgb_to_hsv = None\n")
    assert sys.path[-1] == str(beside)
    assert resolve_function("colorsys:rgb_to_hsv")(0, 0, 0) == (0.0, 0.0, 0)


def test_a_recipe_without_functions_leaves_the_search_path_alone(tmp_path):
    Recipe.parse(recipe(), tmp_path)
    assert str(tmp_path) not in sys.path


def test_a_method_of_a_class_will_do():
    assert resolve_function("pathlib:Path.cwd").__name__ == "cwd"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_lengths", "does not name a function"),
        ("my_lengths:", "does not name a function"),
        ("my-lengths:count", "does not name a function"),
        ("my_lengths:cuont", "has no function cuont"),
        ("my_lengths:cuont", "one of: count"),
        ("my_lengths:LIMIT", "is not a function"),
        ("no_such_module:count", "put no_such_module.py beside the recipe"),
        ("my_lengths.inner:count", "cannot be found"),
        ("my_broken:count", "ZeroDivisionError"),
        ("my_hungry:count", "install no_such_package, which my_hungry imports"),
    ],
)
def test_what_cannot_be_found_is_named(beside, name, words):
    with pytest.raises(RecipeError) as caught:
        resolve_function(name, 'sources[0].length.function "a"')
    assert words in str(caught.value)
    assert caught.value.problem.startswith('sources[0].length.function "a": ')
