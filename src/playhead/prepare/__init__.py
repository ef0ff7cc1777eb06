"""In: a recipe. Out: an index and a selection of each of its sources on disk, and a report.

Parallel, resumable after a kill, the same bytes whatever the engine and the number of workers.
Names are imported when first used: a worker that scans a shard starts in half the time without the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.jobs import Engine, Local, Ray
    from playhead.prepare.report import Compiling, MeasureProgress, PrepareReport, Progress, SourceReport
    from playhead.prepare.run import prepare

__all__ = [
    "Compiling",
    "Engine",
    "Local",
    "MeasureProgress",
    "PrepareReport",
    "Progress",
    "Ray",
    "SourceReport",
    "prepare",
]

_HOMES = dict.fromkeys(("Engine", "Local", "Ray"), "playhead.jobs") | {"prepare": "playhead.prepare.run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'playhead.prepare' has no attribute '{name}'")
    value = getattr(import_module(_HOMES.get(name, "playhead.prepare.report")), name)
    globals()[name] = value
    return value
