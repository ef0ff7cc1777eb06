"""Samples -> batches in time.

In: a prepared recipe and who we are. Out: its plan, opened; and a loader that delivers our batches in order.
"""

from playhead.feed.open import map_tables, open_plan, plan_tables

__all__ = ["map_tables", "open_plan", "plan_tables"]
