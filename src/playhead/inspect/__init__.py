"""A plan measured, and loading too.

In: a plan, or a recipe to load. Out: its costs, the contents of a step, and what limits loading. Only the CLI imports
this.
"""
