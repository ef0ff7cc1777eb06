"""Samples -> batches in time.

In: a prepared recipe and who we are. Out: a loader that delivers our batches in order.
"""
