"""In: the scanned rows of a source's shards. Out: a `Table`, a few memory-mapped arrays with a selection.

Opening only maps, whatever the number of rows; no Python object exists per row.
"""
