"""A recipe checked by anyone, on their own machine.

In: a recipe. Out: findings before a job is queued (`checks`). Only `cli` imports this.
"""
