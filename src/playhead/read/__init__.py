"""Picks -> samples: bytes fetched, decoded and mapped by the user's function; bad samples reported or replaced.

In: the picks of a micro-batch. Out: its samples in order, and the incidents on the way.
"""

from playhead.read.reader import NONE_FETCHED, Fetched, Reader, Request
from playhead.read.substitutes import Incident

__all__ = ["NONE_FETCHED", "Fetched", "Incident", "Reader", "Request"]
