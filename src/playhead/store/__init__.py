"""In: paths or URLs, and byte ranges. Out: listings, sizes and marks, bytes; and files written atomically.

Local files, objects in S3, Google Cloud Storage, Azure, AIStore and on web servers, and memory, by one protocol:
`Files`. Compressed files of lines are decompressed transparently.
"""

from playhead.store.access import Access, access_of, any_in_process, num_costly, requests_cost
from playhead.store.addresses import is_url
from playhead.store.ahead import ReadingAhead
from playhead.store.aistore import AistoreFiles
from playhead.store.clients import stores_were_read
from playhead.store.compressed import CompressedFiles, compressed_files, compression_of, with_views
from playhead.store.copies import CopiedFiles
from playhead.store.counting import CountingFiles
from playhead.store.files import Buffer, Extent, File, Files, Ranges, Stamp, open_file
from playhead.store.joining import JoiningFiles
from playhead.store.listing import list_files
from playhead.store.local import LocalFiles, unreadable
from playhead.store.mapped import load_bytes, read_ahead
from playhead.store.memory import MEMORY, MemoryFiles
from playhead.store.queueing import QueuedFiles
from playhead.store.remote import RemoteFiles
from playhead.store.schemes import SchemeFiles, all_files, scheme_files
from playhead.store.shard_cache.caching import CachingFiles, caching_files
from playhead.store.timing import SPANS, Span, TimedFiles
from playhead.store.together import ask_together, done_together
from playhead.store.writing import fresh_directory, replacing, swap_directory, sync_directory, writing_to

__all__ = [
    "MEMORY",
    "SPANS",
    "Access",
    "AistoreFiles",
    "Buffer",
    "CachingFiles",
    "CompressedFiles",
    "CopiedFiles",
    "CountingFiles",
    "Extent",
    "File",
    "Files",
    "JoiningFiles",
    "LocalFiles",
    "MemoryFiles",
    "QueuedFiles",
    "Ranges",
    "ReadingAhead",
    "RemoteFiles",
    "SchemeFiles",
    "Span",
    "Stamp",
    "TimedFiles",
    "access_of",
    "all_files",
    "any_in_process",
    "ask_together",
    "caching_files",
    "compressed_files",
    "compression_of",
    "done_together",
    "fresh_directory",
    "is_url",
    "list_files",
    "load_bytes",
    "num_costly",
    "open_file",
    "read_ahead",
    "replacing",
    "requests_cost",
    "scheme_files",
    "stores_were_read",
    "swap_directory",
    "sync_directory",
    "unreadable",
    "with_views",
    "writing_to",
]
