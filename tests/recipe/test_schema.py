from __future__ import annotations

import copy

import jsonschema
import msgspec
import pytest
from hypothesis import given

from playhead import Recipe
from playhead.recipe import augments, values
from playhead.recipe.field_docs import FIELD_DOCS
from playhead.recipe.schema import recipe_schema
from recipe.generated import recipes
from recipe.recipes import FIXED, PACK, group, recipe, source
from recipe.test_check import GOOD
from recipe.test_check_augments import GOOD as GOOD_AUGMENTS
from recipe.test_check_delivery import GOOD as GOOD_DELIVERIES

VALIDATOR = jsonschema.Draft202012Validator(recipe_schema())


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(recipe_schema())


def test_every_field_has_its_sentence_and_no_sentence_is_left_over():
    named = (vars(augments) | vars(values)).values()
    structs = [kind for kind in named if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    real = {kind.__name__: set(kind.__struct_fields__) for kind in structs if kind is not msgspec.Struct}
    assert {name: set(docs) for name, docs in FIELD_DOCS.items()} == real


@pytest.mark.parametrize(
    "good", (GOOD | GOOD_DELIVERIES | GOOD_AUGMENTS).values(), ids=GOOD | GOOD_DELIVERIES | GOOD_AUGMENTS
)
def test_good_recipes_are_valid(good):
    VALIDATOR.validate(good)


@given(recipes())
def test_whatever_the_reader_takes_is_valid(good):
    VALIDATOR.validate(good)
    VALIDATOR.validate(Recipe.parse(good, "/data").to_dict())


def test_references_to_the_environment_are_valid_in_place_of_numbers_and_words():
    VALIDATOR.validate(recipe(source(shuffle="${SHUFFLE}"), lanes="${LANES}"))


@pytest.mark.parametrize(
    "bad",
    [
        recipe(source(wieght=1)),
        recipe(group("g", source(wieght=1))),
        recipe(source(kind="source")),
        recipe({"name": "a"}),
        recipe(bacthing=1),
        recipe(batching={"type": "packs", "max_length": 1}),
        recipe(batching={**PACK, "size": 1}),
        recipe(source(weight="heavy")),
        recipe(source(length={"feild": "n"})),
        recipe(source(shuffle="globall")),
        recipe(lanes=0),
        recipe(dtypes={"n": "unit64"}),
        recipe(sequence=5),
        recipe(lanes="many"),
        recipe(evaluation={"dev": {"sources": [source(x=1)], "batching": FIXED}}),
        {"batching": FIXED},
    ],
)
def test_mistakes_are_not_valid(bad):
    assert not VALIDATOR.is_valid(bad)


def test_a_misspelt_key_is_reported_where_it_stands():
    bad = copy.deepcopy(recipe(group("g", source(wieght=1))))
    messages = [error.message for error in VALIDATOR.iter_errors(bad)]
    assert any("'wieght' was unexpected" in message for message in messages)
