"""In: manifests of recordings with their segments. Out: manifests of training windows, and their audio.

Resumable after a kill, the same bytes whatever the number of workers.
"""

from playhead.curate.build import build_windows
from playhead.curate.config import CutConfig, WindowConfig
from playhead.curate.cutting import cut_row
from playhead.curate.overlap import filter_overlaps

__all__ = ["CutConfig", "WindowConfig", "build_windows", "cut_row", "filter_overlaps"]
