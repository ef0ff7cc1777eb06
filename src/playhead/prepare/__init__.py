"""Comes in: a recipe. Goes out: an index and a selection of each of its sources on disk, and a report.

Parallel, resumable after a kill, the same bytes whatever the engine and the number of workers.
"""

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
