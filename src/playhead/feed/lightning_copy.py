"""The copy of a loader's state that Lightning saves on its own."""

from __future__ import annotations

import inspect

from playhead.errors import StateError


def refuse_lightnings_copy() -> None:
    """Refuse the state after the last batch delivered to Lightning, which fetches ahead and saves inside steps."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "_state_dicts" and module.endswith("utilities.combined_loader"):
            raise StateError(
                "Lightning would save the state of a loader that it may have fetched further than it has trained",
                expected="playhead.lightning, which saves the state after the last finished optimizer step",
                fix="use playhead.lightning.DataModule(recipe), or add playhead.lightning.ExactResume() to the "
                "Trainer's callbacks; see docs/trainers.md",
            )
        frame = frame.f_back
