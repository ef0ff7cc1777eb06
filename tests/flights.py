"""Requests that wait for each other: what is asked for one after another never meets."""

from __future__ import annotations

from threading import Barrier, Lock

PATIENCE_SECONDS = 240


class Meeting:
    """The `fail` of FaultyFiles: a request goes on when so many are in flight together, and none of them fails."""

    def __init__(self, num_together: int) -> None:
        self._barrier, self._lock = Barrier(num_together), Lock()
        self.num_requests = 0

    def __call__(self, _number: int, _method: str, _path: str) -> None:
        with self._lock:
            self.num_requests += 1
        self._barrier.wait(PATIENCE_SECONDS)
