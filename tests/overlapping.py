"""A map and a storage that meet in a worker: the map of a batch goes on when the bytes of later ones are asked for."""

from __future__ import annotations

import threading
from typing import Any

from flights import PATIENCE_SECONDS

_asked = threading.Condition()
_num_reads = 0
_mapping = threading.Lock()


def counted(_number: int, method: str, _path: str) -> None:
    """The `fail` of FaultyFiles: no request fails."""
    global _num_reads  # noqa: PLW0603 - a worker process has one storage
    if method == "read":
        with _asked:
            _num_reads += 1
            _asked.notify_all()


def patient(sample: dict[str, Any]) -> dict[str, Any]:
    """Waits until three more reads were asked for than batches of one row were mapped; never runs twice at once."""
    assert _mapping.acquire(blocking=False), "the map runs in two threads"
    try:
        with _asked:
            found = _asked.wait_for(lambda: _num_reads >= sample["n"] + 3, PATIENCE_SECONDS)
        assert found, f"only {_num_reads} reads were asked for"
    finally:
        _mapping.release()
    return sample
