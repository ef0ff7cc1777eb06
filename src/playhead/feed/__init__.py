"""Samples -> batches in time.

In: a prepared recipe, a rank and the world size. Out: a loader that delivers the batches of the rank in order.
"""
