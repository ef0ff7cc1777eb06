"""A plan measured.

In: a plan. Out: what it costs, and what a step of it holds. Nothing else imports this.
"""
