from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import RecipeError
from playhead.recipe.environment import escape, expand_environment

VARIABLES = {"DATA": "/data", "EMPTY": "", "NESTED": "${DATA}"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${DATA}/a", "/data/a"),
        ("${DATA}${DATA}", "/data/data"),
        ("${MISSING:-/other}/a", "/other/a"),
        ("${EMPTY:-/other}", "/other"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("$${DATA}", "${DATA}"),
        ("${NESTED}", "${DATA}"),
        ("$DATA costs $5", "$DATA costs $5"),
    ],
)
def test_references_are_replaced_once(text, expanded):
    assert expand_environment(text, VARIABLES) == expanded


def test_a_missing_variable_is_named_with_its_place():
    with pytest.raises(RecipeError) as caught:
        expand_environment({"sources": [{}, {"path": ["a", "${NOWHERE}/b"]}]}, VARIABLES)
    assert caught.value.problem == "sources[1].path[1]: the environment variable NOWHERE is not set"


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A B}", "${A"])
def test_a_malformed_reference_is_refused(text):
    with pytest.raises(RecipeError, match="malformed"):
        expand_environment({"path": text}, {"A": "a"})


def test_numbers_and_keys_are_left_alone():
    assert expand_environment({"${DATA}": [1, None, True]}, VARIABLES) == {"${DATA}": [1, None, True]}


@given(st.text(alphabet="${}aA:-"))
def test_an_escaped_text_expands_to_itself(text):
    assert expand_environment(escape(text), {}) == text
