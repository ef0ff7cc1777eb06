"""The place of our processes among others where cores are scarce."""

from __future__ import annotations

import os
from contextlib import suppress


def give_way() -> None:
    """Let this thread, and those that it starts from now on, not interrupt others when work arrives for it.

    A worker that is sent work would otherwise be given the core of the training loop at once, and the loop would wait
    before it goes on with its batch. Over time every process still has the same share of the cores.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:  # Linux, and nobody chose another
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
