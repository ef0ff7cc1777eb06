"""Window -> steps, as pure functions of integers.

In: the picks of a window and their lengths. Out: steps of `lanes` micro-batches, and the receipt of each step.
"""
