"""Offline work in parallel.

In: any number of jobs. Out: what each gave, as they finish, from processes here or on a Ray cluster.
Law: which engine did the jobs, on how many workers and after how many deaths, changes no byte of a result.
"""

from playhead.jobs.engine import Done, Engine, Job, run_jobs
from playhead.jobs.local_engine import Local, default_workers
from playhead.jobs.ray_engine import Ray

__all__ = ["Done", "Engine", "Job", "Local", "Ray", "default_workers", "run_jobs"]
