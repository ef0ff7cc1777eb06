from __future__ import annotations

import json

import msgspec
import pytest
import yaml
from hypothesis import given

from playhead import Recipe
from recipe.generated import recipes


@given(recipes())
def test_a_valid_recipe_survives_writing_and_reading(values):
    recipe = Recipe.parse(values, "/data")
    assert Recipe.parse(recipe.to_dict(), "/elsewhere") == recipe
    assert Recipe.parse(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert Recipe.parse(yaml.safe_load(yaml.safe_dump(recipe.to_dict()))) == recipe


@given(recipes())
def test_the_values_are_what_msgspec_itself_accepts(values):
    recipe = Recipe.parse(values, "/data")
    assert msgspec.json.decode(msgspec.json.encode(recipe), type=Recipe) == recipe


@given(recipes())
def test_every_path_is_absolute(values):
    recipe = Recipe.parse(values, "/data")
    paths = [path for leaf in _sources(recipe.sources) for path in leaf.path]
    assert paths
    assert all(path.startswith("/data/") for path in paths)


def _sources(entries):
    for entry in entries:
        yield from _sources(entry.sources) if hasattr(entry, "sources") else [entry]


@pytest.mark.parametrize("format_name", ["lhotse", "lhotse_shar", "nemo"])
def test_the_default_length_of_a_format_survives_writing_and_reading(format_name):
    source = {"name": "s", "path": "cuts.jsonl", "format": format_name}
    recipe = Recipe.parse({"sources": [source], "batching": {"type": "fixed", "size": 2}}, "/data")
    assert Recipe.parse(recipe.to_dict()) == recipe
