"""Comes in: manifests of diarised recordings. Goes out: training windows of about one length that overlap little.

Resumable after a kill, the same bytes whatever the number of workers.
"""

from playhead.curate.build import build_windows
from playhead.curate.config import WindowConfig
from playhead.curate.overlap import filter_overlaps

__all__ = ["WindowConfig", "build_windows", "filter_overlaps"]
