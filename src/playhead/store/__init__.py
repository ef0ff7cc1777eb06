"""Comes in: paths or URLs, and byte ranges. Goes out: listings, sizes and marks, bytes; and files written in one piece.

Local files, and objects in S3, Google Cloud Storage, Azure and on web servers, by the same functions.
"""

from playhead.store.addresses import is_url
from playhead.store.files import File, list_files, open_file, stamp, stream
from playhead.store.local import LocalFile, Stamp, unreadable
from playhead.store.mapped import load_bytes, read_ahead
from playhead.store.spans import OpenFiles, Spans, read_spans
from playhead.store.writing import fresh_directory, replacing, swap_directory, sync_directory, writing_to

__all__ = [
    "File",
    "LocalFile",
    "OpenFiles",
    "Spans",
    "Stamp",
    "fresh_directory",
    "is_url",
    "list_files",
    "load_bytes",
    "open_file",
    "read_ahead",
    "read_spans",
    "replacing",
    "stamp",
    "stream",
    "swap_directory",
    "sync_directory",
    "unreadable",
    "writing_to",
]
