"""Comes in: paths and byte ranges. Goes out: listings, sizes and marks, bytes; and files written whole or not at all.

Local files now; an object store will offer the same functions.
"""

from playhead.store.local import LocalFile, Stamp, list_files, open_file, stamp
from playhead.store.spans import OpenFiles, Spans, read_spans
from playhead.store.writing import fresh_directory, replacing, swap_directory, writing_to

__all__ = [
    "LocalFile",
    "OpenFiles",
    "Spans",
    "Stamp",
    "fresh_directory",
    "list_files",
    "open_file",
    "read_spans",
    "replacing",
    "stamp",
    "swap_directory",
    "writing_to",
]
