"""A loader given to Lightning without the adapter: what would go wrong in silence is refused.

All that `feed` knows of Lightning: the two functions of it that may call a loader, and what is wrong with that.
"""

from __future__ import annotations

import inspect
from typing import Literal

from playhead.errors import EndOfStreamError, StateError

_REFUSALS = {
    # The state after the last batch delivered to Lightning, which fetches ahead and saves inside steps.
    "_state_dicts": (
        StateError,
        "Lightning would save the state of a loader that it may have fetched further than it has trained",
        "playhead.lightning, which saves the state after the last finished optimizer step",
    ),
    # Another epoch of a round that is over: it would be empty.
    "__next__": (
        EndOfStreamError,
        "Lightning begins another epoch, and the loader's round is over",
        "playhead.lightning, which begins the next round",
    ),
}


def refuse_lightning(function: Literal["_state_dicts", "__next__"]) -> None:
    """Raise where this function of the class in which Lightning puts loaders is among our callers."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == function and "lightning" in module and module.endswith(".combined_loader"):
            error, problem, expected = _REFUSALS[function]
            raise error(
                problem,
                expected=expected,
                fix="use playhead.lightning.DataModule(recipe), or add playhead.lightning.ExactResume() to the "
                "Trainer's callbacks; see docs/trainers.md",
            )
        frame = frame.f_back
