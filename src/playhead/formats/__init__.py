"""In: a source's files. Out: shards, their rows as offsets, lengths and columns, and rows read back.

One file per format; `contract` says what a format is, `registry` how another package adds one.
"""
