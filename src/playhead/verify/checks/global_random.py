"""Which of the process's global random generators some code draws from."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def generators_drawn_from() -> Iterator[list[str]]:
    """A list that, afterwards, names the generators whose state has moved."""
    drawn: list[str] = []
    before = _states()
    yield drawn
    drawn += [name for name, state in _states().items() if name in before and state != before[name]]


def _states() -> dict[str, Any]:
    found: dict[str, Any] = {"random": random.getstate()}
    state: Any = np.random.get_state()  # noqa: NPY002 - it is the one that is watched
    found["numpy.random"] = (state[1].tobytes(), *state[2:])
    torch = sys.modules.get("torch")  # a process that has not imported it has not drawn from it
    if torch is not None:
        found["torch"] = torch.random.get_rng_state().numpy().tobytes()
    return found
