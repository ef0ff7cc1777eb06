"""Picks -> samples: bytes fetched, decoded, mapped by the user's function, and what becomes of bad ones.

In: the picks of a micro-batch. Out: its samples in order, and the incidents on the way.
"""

from playhead.read.reader import Reader, Request
from playhead.read.substitutes import Incident

__all__ = ["Incident", "Reader", "Request"]
