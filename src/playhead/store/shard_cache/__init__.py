"""In: a directory on a local disk. Out: the copies, ranks, counters and queue in it, and storage read through them.

`caching` is the wrapper that readers use. What copies and evicts is read/cache_filler.
"""
