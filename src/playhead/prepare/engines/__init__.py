"""Comes in: any number of jobs. Goes out: what each gave, as they finish, from processes here or on a Ray cluster.

Law: which engine did the jobs, on how many workers and after how many deaths, changes no byte of a result.
"""

from playhead.prepare.engines.cluster import Ray
from playhead.prepare.engines.contract import Done, Engine, Job, run_jobs
from playhead.prepare.engines.local import Local

__all__ = ["Done", "Engine", "Job", "Local", "Ray", "run_jobs"]
