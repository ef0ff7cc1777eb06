"""Comes in: manifests of recordings with their segments. Goes out: manifests of training windows, and their audio.

Offline, before a recipe reads them.
"""
