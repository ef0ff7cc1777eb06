"""A loader given to Lightning without the adapter: silent errors are refused.

This is all that `feed` knows of Lightning: the two functions that must not call a loader directly, and why.
"""

from __future__ import annotations

import inspect
from typing import Literal

from playhead.errors import EndOfStreamError, StateError

_REFUSALS = {
    # The state after the last batch delivered. Lightning fetches ahead and saves inside steps.
    "_state_dicts": (
        StateError,
        "Lightning would save the state of a loader from which it may have fetched more batches than it has trained on",
        "playhead.lightning, which saves the state after the last finished optimizer step",
    ),
    # Another epoch of a finished round: it would be empty.
    "__next__": (
        EndOfStreamError,
        "Lightning begins another epoch, but the loader's round has finished",
        "playhead.lightning, which begins the next round",
    ),
}


def refuse_lightning(function: Literal["_state_dicts", "__next__"]) -> None:
    """Raise if this function of Lightning's `CombinedLoader` is among the callers."""
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
