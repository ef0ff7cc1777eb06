"""In: the ranks registered in the directory of a shard cache, and their plans. Out: copies of what they need next.

`process` is the filler of a node, `filling` its loop, `fetch_order` what is copied and evicted when, `copying` how.
"""
