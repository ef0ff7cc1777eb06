"""The user's map: called with a sample and, if it takes one, the sample's generator."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from playhead.errors import RecipeError, SampleError
from playhead.formats.rows import Sample
from playhead.read.generator import SampleGenerator


def name_of(function: Callable[..., Any]) -> str:
    """A function as a recipe would name it."""
    module = getattr(function, "__module__", None) or "?"
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


class Mapper:
    """The function wrapped to take a sample and its generator, check its result, and name the cause of errors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._with_generator = takes_generator(function)

    def __call__(self, sample: Sample, generator: SampleGenerator) -> Sample:
        done, problem = self.run([sample], [generator])
        if problem is not None:
            raise problem from problem.__cause__
        return done[0]

    def run(
        self, samples: Iterable[Sample], generators: Iterable[SampleGenerator]
    ) -> tuple[list[Sample], SampleError | None]:
        """The samples mapped, up to the first that fails, and its error."""
        function, done = self._function, list[Sample]()
        try:
            for sample, generator in zip(samples, generators, strict=True):
                found = function(sample, generator) if self._with_generator else function(sample)
                if not isinstance(found, dict):
                    return done, self._not_a_dictionary(found)
                done.append(found)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; it is reported
            problem = SampleError(
                f"the map {name_of(function)} raised {type(error).__name__}: {error}",
                found=f"in {place_of(error, function)}",
            )
            problem.__cause__ = error
            return done, problem
        return done, None

    def _not_a_dictionary(self, found: Any) -> SampleError:
        return SampleError(
            f"the map {name_of(self._function)} returned {'None' if found is None else type(found).__name__}",
            expected="a dictionary for every sample",
            fix="return the sample; rows are left out with `keep`, `drop_ids` or `drop_rows`, not by the map",
        )


def takes_generator(function: Callable[..., Any]) -> bool:
    """Whether the function requires a second argument; one with a default is not passed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
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
    """The innermost line of the traceback in the function's own file, or in any file if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
