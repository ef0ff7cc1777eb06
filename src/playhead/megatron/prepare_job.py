"""A job -> its cache, entry by entry in threads. What is whole and current is left alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from playhead.megatron.build import build_dataset, build_mixture
from playhead.megatron.files import broken_files, manifest_of, read_manifest
from playhead.megatron.idx import Idx
from playhead.megatron.job import Job
from playhead.megatron.plan import Dataset, Mixture, Plan, plan_job
from playhead.megatron.survey import Survey, survey_job
