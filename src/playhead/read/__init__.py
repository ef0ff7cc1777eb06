"""Picks -> samples: bytes fetched, decoded, mapped by the user's function, and what becomes of bad ones.

In: the picks of a micro-batch. Out: its samples in order, and the incidents on the way.
"""

from playhead.read.faults import Incident
from playhead.read.reader import Reader, Request

__all__ = ["Incident", "Reader", "Request"]
