"""A loader given to Lightning without the adapter: what would go wrong in silence is refused."""

from __future__ import annotations

import inspect

from playhead.errors import EndOfStreamError, StateError

_FIX = (
    "use playhead.lightning.DataModule(recipe), or add playhead.lightning.ExactResume() to the Trainer's callbacks; "
    "see docs/trainers.md"
)


def refuse_lightnings_copy() -> None:
    """Refuse the state after the last batch delivered to Lightning, which fetches ahead and saves inside steps."""
    if _called_by_lightning("_state_dicts"):
        raise StateError(
            "Lightning would save the state of a loader that it may have fetched further than it has trained",
            expected="playhead.lightning, which saves the state after the last finished optimizer step",
            fix=_FIX,
        )


def refuse_lightnings_epoch() -> None:
    """Refuse another epoch of a round that is over: it would be empty."""
    if _called_by_lightning("__next__"):
        raise EndOfStreamError(
            "Lightning begins another epoch, and the loader's round is over",
            expected="playhead.lightning, which begins the next round",
            fix=_FIX,
        )


def _called_by_lightning(function: str) -> bool:
    """Whether a function of the class in which Lightning puts loaders is among our callers: it does not say so."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == function and "lightning" in module and module.endswith(".combined_loader"):
            return True
        frame = frame.f_back
    return False
