"""Contract suites for those who write formats and stores.

In: a format with some files of it, or an implementation of `Files`. Out: nothing, or an AssertionError that says which
law is broken, and on what.
"""

from playhead.testing.faulty import Fault, FaultyFiles
from playhead.testing.files_contract import check_files
from playhead.testing.format_contract import check_format

__all__ = ["Fault", "FaultyFiles", "check_files", "check_format"]
