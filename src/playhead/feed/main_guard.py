"""A script without a main guard: its spawned workers import it and would run it again."""

from __future__ import annotations

import multiprocessing
import os

from playhead.errors import WorkerError

PATIENCE_SECONDS = 2.0  # how long to wait for a worker that is about to exit
_NO_MAIN_GUARD = 113  # the exit code of a worker that ran the script that starts workers


def refuse_in_bootstrap() -> None:
    """Exit a worker process that is about to start workers while it imports the user's script.

    It exits silently: the owner sees the exit code and raises the error.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(_NO_MAIN_GUARD)


def without_main_guard(exit_code: int | None) -> WorkerError | None:
    """The error for a worker that exited like this; None for any other exit code."""
    if exit_code != _NO_MAIN_GUARD:
        return None
    return WorkerError(
        "a worker process ran the script that starts workers, instead of waiting for work",
        found="a loader is iterated, or data is prepared, at the top level of the script",
        expected="only the process that you started does so: workers import the script, too",
        fix='put the code that uses the loader into a function, and call it under `if __name__ == "__main__":`',
    )
