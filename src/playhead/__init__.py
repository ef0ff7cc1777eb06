"""Playhead: training data as a pure function of (recipe, step)."""
