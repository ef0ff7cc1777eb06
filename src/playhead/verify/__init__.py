"""A recipe checked and proved by anyone, on their own machine.

In: a recipe. Out: findings before a job is queued (`checks`), and a verdict on each of twelve questions, from real
processes, kills and resumes (`verify`). Only `cli` and `testing` import this.
"""
