"""The laws of a map, tried on a few samples; see `check_map`."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from playhead.errors import SampleError
from playhead.formats.rows import Sample
from playhead.read.generator import SampleGenerator
from playhead.read.mapping import Mapper, name_of
from playhead.seeds import key
from playhead.verify.checks.global_random import generators_drawn_from
from playhead.verify.payload import Part, first_difference, parts_of
from playhead.verify.verdict import SEEDING


def check_map(function: Callable[..., Any], samples: Sequence[Sample]) -> None:
    """Check that a map can be resumed, and run on any worker.

    Laws: it makes a dictionary of every sample; it draws from no global random generator; it gives the same, to the
    last bit, when it is run again, on the samples in another order, and in a worker process. Each sample is given to
    it as a copy, with the generator of its own that it would have in a run, if it takes one.

        def test_our_map():
            check_map(our_map, [{"id": "a", "tokens": [1, 2, 3]}])
    """
    name = name_of(function)
    with generators_drawn_from() as drawn:
        first = _mapped(function, samples)
    if drawn:
        raise AssertionError(f"{name} draws from {', '.join(drawn)}; {SEEDING[0]}")
    again = _mapped(function, samples, backwards=True)
    _expect_equal(f"{name}, run again on the samples in another order", first, again)
    try:
        pickle.dumps(function)
    except Exception as error:  # pickling runs code of the user's classes
        raise AssertionError(f"{name} cannot be sent to a worker process: {error}") from error
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        _expect_equal(f"{name}, run in a worker process", first, pool.submit(_mapped, function, samples).result())


def _mapped(function: Callable[..., Any], samples: Sequence[Sample], *, backwards: bool = False) -> list[list[Part]]:
    """What the map gives for each sample."""
    mapper, found = Mapper(function), dict[int, list[Part]]()
    rows = range(len(samples))
    for row in reversed(rows) if backwards else rows:
        try:
            found[row] = parts_of(mapper(copy.deepcopy(samples[row]), SampleGenerator(key("check_map"), 0, row)))
        except SampleError as error:
            raise AssertionError(f"sample {row}: {error}") from error
    return [found[row] for row in rows]


def _expect_equal(title: str, first: list[list[Part]], second: list[list[Part]]) -> None:
    for row, (left, right) in enumerate(zip(first, second, strict=True)):
        found = first_difference(left, right)
        if found is not None:
            text = (
                f"{title}: of sample {row}, {found.path}{found.element} was {found.expected}, and is {found.delivered}"
            )
            raise AssertionError("\n  ".join([text, *(f"usual cause: {cause}" for cause in SEEDING)]))
