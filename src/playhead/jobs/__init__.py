"""Offline work in parallel.

In: any number of jobs. Out: what each gave, as they finish, from processes or threads here, or from a Ray cluster.
Law: which engine did the jobs, on how many workers and after how many deaths, changes no byte of a result.
"""

from playhead.jobs.engine import Call, Done, Engine, Job
from playhead.jobs.local_engine import Local, default_workers
from playhead.jobs.ray_engine import Ray

__all__ = ["Call", "Done", "Engine", "Job", "Local", "Ray", "default_workers"]
