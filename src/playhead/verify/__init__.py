"""The promises of the stream, proved on a user's own recipe with real processes, kills and resumes.

In: a recipe. Out: a verdict on each of twelve questions (`verify`). Only `cli` imports this.
"""
