"""The indexes of a job, each read once: checked, digested, and the tokens of its splits added up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from playhead.errors import Failure, PlayheadError, PrepareError
from playhead.formats.megatron_idx import Idx, idx_path, open_idx
from playhead.jobs import Call, Local
from playhead.megatron.job import MegatronJob
from playhead.megatron.splits import sequences_of, split_matrix
from playhead.store import Files


def open_indexes(
    job: MegatronJob, files: Files, workers: int, done: Callable[[str], None] | None = None
) -> dict[str, Idx]:
    """Every index of a job by its prefix. All that are missing or broken are listed in one error.

    In threads: most of the time is spent on storage and on digests, which release the interpreter lock.
    """
    bounds = [(0.0, 1.0)] if job.split is None else [pair for pair in split_matrix(job.split) if pair is not None]
    outcomes: dict[str, Any] = {}

    def ranges_of(num_sequences: int) -> list[tuple[int, int]]:
        return [sequences_of(pair, num_sequences) for pair in bounds]

    def collect(call: Call[Idx], outcome: Any) -> None:
        outcomes[call.name] = outcome
        if done is not None:
            done(call.name)

    prefixes = job.prefixes()
    calls = [Call(prefix, partial(open_idx, files, prefix, ranges_of)) for prefix in prefixes]
    Local(workers, threads=True).run(calls, collect)
    errors = {prefix: outcomes[prefix] for prefix in prefixes if isinstance(outcomes[prefix], PlayheadError)}
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        failures = tuple(Failure(prefix, idx_path(prefix), str(error)) for prefix, error in errors.items())
        raise PrepareError(f"{len(errors)} of {len(prefixes)} datasets cannot be read", failures=failures)
    return {prefix: outcomes[prefix] for prefix in prefixes}
