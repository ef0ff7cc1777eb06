"""Samples -> batches in time.

In: a prepared recipe. Out, so far: its plan, opened. (Collation, workers and the loader stand on it.)
"""

from playhead.feed.open import open_plan

__all__ = ["open_plan"]
