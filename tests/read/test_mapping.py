"""The user's map: what it may take and give, and how its mistakes are told."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import loader_maps
from playhead.errors import RecipeError, SampleError
from playhead.read.generator import SampleGenerator
from playhead.read.mapping import Mapper, name_of

GENERATOR = SampleGenerator(1, 0, 0)


class Shift:
    """A map with settings of its own."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"n": sample["n"] + self.by}

    def method(self, sample: dict[str, Any], generator: Any) -> dict[str, Any]:
        return {"n": sample["n"] + self.by, "same": generator is GENERATOR}


def test_functions_objects_methods_and_partials_are_maps() -> None:
    for function in (Shift(2), functools.partial(Shift(0).__class__.__call__, Shift(2)), lambda s: {"n": s["n"] + 2}):
        assert Mapper(function)({"n": 1}, GENERATOR) == {"n": 3}
    assert Mapper(Shift(2).method)({"n": 1}, GENERATOR) == {"n": 3, "same": True}
    assert Mapper(dict)({"n": 1}, GENERATOR) == {"n": 1}  # a builtin that does not tell what it takes


@pytest.mark.parametrize(("function", "word"), [(loader_maps.nothing, "None"), (lambda s: [s], "list"), (str, "str")])
def test_what_is_no_sample_is_refused_with_the_way_to_leave_rows_out(function: Any, word: str) -> None:
    with pytest.raises(SampleError) as caught:
        Mapper(function)({"n": 1}, GENERATOR)
    assert caught.value.problem == f"the map {name_of(function)} returned {word}"
    assert "`keep`" in str(caught.value.fix)


def test_a_map_of_too_many_arguments_is_refused_before_it_runs() -> None:
    with pytest.raises(RecipeError, match="takes 3 arguments"):
        Mapper(lambda a, b, c: (a, b, c))


def test_an_error_inside_a_library_names_the_user_s_own_line() -> None:
    with pytest.raises(SampleError) as caught:
        Mapper(loader_maps.library_fails)({}, GENERATOR)
    assert "the map loader_maps:library_fails raised ValueError: cannot reshape" in caught.value.problem
    assert f"in {loader_maps.__file__}, line " in str(caught.value.found)
    assert str(caught.value.found).endswith("in library_fails")
    assert isinstance(caught.value.__cause__, ValueError)


def test_ctrl_c_in_a_map_is_not_taken_for_a_bad_sample() -> None:
    def interrupted(sample: dict[str, Any]) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Mapper(interrupted)({}, GENERATOR)
