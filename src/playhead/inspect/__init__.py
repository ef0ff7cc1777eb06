"""A plan measured.

In: a plan. Out: its costs, and the contents of a step. Only the CLI imports this.
"""
