"""Static checks of a recipe, before a job is queued.

In: the path of a recipe, and what is planned with it. Out: findings, each with a code, a severity, its place and a fix.
"""

from playhead.verify.checks.catalog import CHECKS
from playhead.verify.checks.finding import Finding, Severity
from playhead.verify.checks.options import CheckOptions
from playhead.verify.checks.run import CheckReport, check_recipe

__all__ = ["CHECKS", "CheckOptions", "CheckReport", "Finding", "Severity", "check_recipe"]
