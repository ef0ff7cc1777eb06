"""Comes in: paths and byte ranges. Goes out: listings, sizes and marks, bytes; and files written whole or not at all.

Local files now; an object store will offer the same functions.
"""

from playhead.store.local import LocalFile, Stamp, list_files, open_file, read, stamp
from playhead.store.writing import fresh_directory, replacing, swap_directory, writing_to

__all__ = [
    "LocalFile",
    "Stamp",
    "fresh_directory",
    "list_files",
    "open_file",
    "read",
    "replacing",
    "stamp",
    "swap_directory",
    "writing_to",
]
