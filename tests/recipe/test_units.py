from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import RecipeError
from playhead.recipe.units import in_units, length_limit, longest_within, milliseconds
from playhead.recipe.values import Bucket, Budget, Fixed, Pack


@given(st.integers(0, 10**9))
def test_a_whole_number_of_milliseconds_survives_seconds(count):
    assert milliseconds(count / 1000) == count


def test_seconds_round_up():
    assert (milliseconds(2.3), milliseconds(0.0101), milliseconds(0)) == (2300, 11, 0)


def test_half_a_token_is_refused_with_its_place():
    assert in_units(7.0, "tokens", "x") == 7
    with pytest.raises(RecipeError, match=r"batching.budget: a length in tokens must be a whole number"):
        in_units(7.5, "tokens", "batching.budget")


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_the_longest_sample_within_a_quadratic_budget_fits_and_one_more_does_not(budget, quadratic):
    def effective(length):
        return length + -(-length * length // quadratic)

    longest = longest_within(budget, quadratic)
    assert longest == 0 or effective(longest) <= budget
    assert effective(longest + 1) > budget


@pytest.mark.parametrize(
    ("batching", "limit"),
    [
        (Fixed(size=2), None),
        (Fixed(size=2, max_length=9.5), 9500),
        (Pack(max_length=3), 3000),
        (Budget(budget=2), 2000),
        (Budget(budget=2, quadratic=1), 1000),
        (Bucket(edges=[1, 2.5], size=1), 2500),
        (Bucket(edges=[(1, 9), (2, 3)], size=1), 2000),
        (Bucket(num=3, size=1), None),
    ],
)
def test_the_longest_sample_a_batch_can_hold(batching, limit):
    assert length_limit(batching, "seconds", "batching") == limit
