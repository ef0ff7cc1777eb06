"""Comes in: an implementation of one of our protocols. Goes out: an AssertionError that names the law it breaks.

For those who write storage of their own; nothing here needs pytest.
"""

from playhead.testing.faulty import Fault, FaultyFiles
from playhead.testing.files_contract import check_files

__all__ = ["Fault", "FaultyFiles", "check_files"]
