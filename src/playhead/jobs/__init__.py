"""Offline work in parallel.

In: any number of jobs. Out: their results, as they finish, from processes or threads here, or from a Ray cluster.
Law: the bytes of a result do not depend on the engine, on the number of workers or on killed workers.
"""

from playhead.jobs.engine import Call, Done, Engine, Job
from playhead.jobs.local_engine import Local, default_workers
from playhead.jobs.ray_engine import Ray

__all__ = ["Call", "Done", "Engine", "Job", "Local", "Ray", "default_workers"]
