"""Recipe and prepared tables -> plan.

In: a recipe and the tables of its sources. Out: its plan, with weights, rules, window sizes and fingerprints settled.
"""

from playhead.resolve.open import map_tables, open_plan, plan_tables

__all__ = ["map_tables", "open_plan", "plan_tables"]
