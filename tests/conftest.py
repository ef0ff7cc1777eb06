"""Hypothesis profiles: `ci` (the default) finds the same examples every time; HYPOTHESIS_PROFILE chooses another."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Two shared cores are slow now and then, and another release of Hypothesis draws other examples: neither is a
# failure of the code.
_calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("ci", derandomize=True, max_examples=60, database=None, **_calm)
settings.register_profile("dev", max_examples=30, **_calm)
settings.register_profile("thorough", max_examples=2000, **_calm)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
