from __future__ import annotations

import pytest

from playhead import Recipe, RecipeError
from playhead.recipe.tree import branches, evaluation_branch, leaves
from recipe.recipes import FIXED, PACK, group, recipe, source


def test_most_recipes_have_one_branch_with_every_source():
    found = Recipe.parse(recipe(group("g", source("a"), group("h", source("b"))), source("c"), lanes=4), "/data")
    (branch,) = branches(found)
    assert (branch.name, branch.lanes) == ("main", 4)
    assert [leaf.path for leaf in branch.leaves()] == [
        "sources[0].sources[0]",
        "sources[0].sources[1].sources[0]",
        "sources[1]",
    ]


def test_groups_with_batching_are_branches_and_inherit_the_recipes_rules():
    values = {
        "sources": [
            group("speech", batching=FIXED, lanes=6, window_size=24),
            group("text", batching=PACK, lanes=2, weights_in="samples"),
        ],
        "fuse": "zip",
        "lanes": 8,
        "weights_in": "length",
        "window_size": 48,
    }
    speech, text = branches(Recipe.parse(values, "/data"))
    assert (speech.name, speech.lanes, speech.window_size, speech.weights_in) == ("speech", 6, 24, "length")
    assert (text.name, text.lanes, text.window_size, text.weights_in) == ("text", 2, 48, "samples")
    assert text.leaves()[0].batching_path == "sources[1].batching"


def test_leaves_are_training_first_then_each_evaluation_set():
    evaluation = {"dev": {"sources": [source("d")], "batching": FIXED}}
    found = Recipe.parse(recipe(source("a"), evaluation=evaluation), "/data")
    assert [leaf.path for leaf in leaves(found)] == ["sources[0]", "evaluation.dev.sources[0]"]
    with pytest.raises(RecipeError, match='unknown evaluation set "test"') as caught:
        evaluation_branch(found, "test")
    assert caught.value.expected == "one of: dev"


def test_dropping_overlong_samples_uses_the_units_of_both_lengths():
    batching = {"type": "bucket", "edges": [[1.5, 2.5], [4, 0.5]], "size": 1, "overlong": "drop"}
    seconds = {"field": "d", "unit": "seconds"}
    (leaf,) = leaves(Recipe.parse(recipe(source(length=seconds, output_length=seconds), batching=batching), "/data"))
    assert (leaf.dropped_above, leaf.output_dropped_above) == (4000, 2500)
