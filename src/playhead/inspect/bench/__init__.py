"""In: a prepared recipe and settings of a loader. Out: what limits loading, the figures that say so, what to change.

`report` runs it; `recording` takes the batches, `figures` adds them up, `bottleneck` judges.
"""
