"""The user's map: called with a sample and, if it takes one, the sample's generator."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

from playhead.errors import RecipeError, SampleError
from playhead.read.generator import SampleGenerator

Sample = dict[str, Any]
Mapper = Callable[[Sample, SampleGenerator], Sample]


def name_of(function: Callable[..., Any]) -> str:
    """A function as a recipe would name it."""
    module = getattr(function, "__module__", None) or "?"
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def mapper_of(function: Callable[..., Any]) -> Mapper:
    """The function as one that takes (sample, generator), checks what it gets back, and names what goes wrong."""
    with_generator = takes_generator(function)
    name = name_of(function)

    def call(sample: Sample, generator: SampleGenerator) -> Sample:
        try:
            found = function(sample, generator) if with_generator else function(sample)
        except Exception as error:
            raise SampleError(
                f"the map {name} raised {type(error).__name__}: {error}", found=f"in {place_of(error, function)}"
            ) from error
        if not isinstance(found, dict):
            raise SampleError(
                f"the map {name} returned {'None' if found is None else type(found).__name__}",
                expected="a dictionary for every sample",
                fix="return the sample; rows are left out with `keep`, `drop_ids` or `drop_rows`, not by the map",
            )
        return found

    return call


def takes_generator(function: Callable[..., Any]) -> bool:
    """Whether the function must be given a second argument; one with a default is not ours to fill."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    if len(required) > 2:
        raise RecipeError(
            f"map: {name_of(function)} takes {len(required)} arguments",
            expected="a function of the sample, or of the sample and its random generator",
        )
    return len(required) == 2


def place_of(error: BaseException, function: Callable[..., Any]) -> str:
    """The innermost line that raised of the function's own file, else of any: a library's line tells a user little."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
