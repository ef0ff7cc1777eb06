"""Comes in: a recipe. Goes out: an index and a selection of each of its sources on disk, and a report.

Parallel, resumable after a kill, the same bytes whatever the number of workers.
"""

from playhead.prepare.report import MeasureProgress, PrepareReport, Progress, SourceReport
from playhead.prepare.run import prepare

__all__ = ["MeasureProgress", "PrepareReport", "Progress", "SourceReport", "prepare"]
