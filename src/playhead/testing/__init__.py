"""Laws to test against: of formats, storages and maps that other packages write, and of the stream of a recipe.

In: a format with some files of it, an implementation of `Files`, a map with some samples, or a prepared recipe. Out:
nothing, or an AssertionError that says which law is broken, and on what.
"""

from playhead.testing.faulty import Fault, FaultyFiles
from playhead.testing.files_contract import check_files
from playhead.testing.format_contract import check_format
from playhead.testing.map_laws import check_map
from playhead.testing.stream_laws import check_cover, check_restore, check_worlds

__all__ = [
    "Fault",
    "FaultyFiles",
    "check_cover",
    "check_files",
    "check_format",
    "check_map",
    "check_restore",
    "check_worlds",
]
