"""The indexes of a job, each read once, in threads: checked, digested, and the tokens of its splits added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from playhead.errors import Failure, PlayheadError, PrepareError
from playhead.megatron.idx import Idx, open_idx
from playhead.megatron.job import Job
from playhead.megatron.splits import Bounds, sequences_of, split_matrix


@dataclass(frozen=True)
class Survey:
    """An index, and the number of tokens in each range of its sequences that a split covers."""

    idx: Idx
    ranges: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def tokens(self, first: int, end: int) -> int:
        return self.ranges[first, end]


def prefixes_of(job: Job) -> list[str]:
    blends = [job.blend, *(job.blends or ())]
    return list(dict.fromkeys(prefix for blend in blends if blend is not None for prefix in blend.prefixes))


def survey_job(job: Job, workers: int, done: Callable[[str], None] | None = None) -> dict[str, Survey]:
    """Every index of a job. All that are missing or broken are listed in one error."""
    bounds: list[Bounds] = [(0.0, 1.0)]
    if job.split is not None:
        bounds = [pair for pair in split_matrix(job.split) if pair is not None]
    prefixes = prefixes_of(job)
    with ThreadPoolExecutor(workers) as pool:
        outcomes = []
        for prefix, outcome in zip(prefixes, pool.map(lambda prefix: _attempt(prefix, bounds), prefixes), strict=True):
            outcomes.append(outcome)
            if done is not None:
                done(prefix)
    errors = [outcome for outcome in outcomes if isinstance(outcome, PlayheadError)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        failures = tuple(
            Failure(prefix, f"{prefix}.idx", str(outcome))
            for prefix, outcome in zip(prefixes, outcomes, strict=True)
            if isinstance(outcome, PlayheadError)
        )
        raise PrepareError(f"{len(errors)} of {len(prefixes)} datasets cannot be read", failures=failures)
    return {outcome.idx.prefix: outcome for outcome in outcomes if isinstance(outcome, Survey)}


def _attempt(prefix: str, bounds: Iterable[Bounds]) -> Survey | PlayheadError:
    try:
        return survey_prefix(prefix, bounds)
    except PlayheadError as error:
        return error


def survey_prefix(prefix: str, bounds: Iterable[Bounds]) -> Survey:
    idx = open_idx(prefix)
    ranges = {}
    for pair in bounds:
        first, end = sequences_of(pair, idx.num_sequences)
        whole = (first, end) == (0, idx.num_sequences)
        ranges[first, end] = idx.num_tokens if whole else int(idx.lengths(first, end).sum(dtype=np.int64))
    return Survey(idx, ranges)
