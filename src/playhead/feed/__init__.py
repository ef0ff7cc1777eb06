"""Samples -> batches in time.

In: a prepared recipe. Out, so far: its plan, opened. (Collation, workers and the loader stand on it.)
"""

from playhead.feed.open import map_tables, open_plan, plan_tables

__all__ = ["map_tables", "open_plan", "plan_tables"]
