"""Megatron's files without Megatron. Comes in: a training job's arguments and `.idx` files, or JSON lines.

Goes out: the dataset caches that the job will look for, byte for byte; `.bin`/`.idx` datasets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.megatron.report import CacheReport, CheckReport, Progress

__all__ = ["check", "merge", "prepare", "tokenize"]


def prepare(
    *,
    workers: int | None = None,
    memory_mb: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    per_dataset_sequences: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    **arguments: Any,
) -> CacheReport:
    """Build the caches of a job. `arguments` are its flags with underscores: `data_path=[0.3, "a", 0.7, "b"]`.

    Ours among them: `megatron_release`, `like`, `keep_partial_validation_sequence`, `at_iteration`.
    """
    from playhead.megatron.prepare_job import prepare_request
    from playhead.megatron.sequences import write_sequences
    from playhead.megatron.settings import request_of
    from playhead.megatron.survey import survey_job

    request = request_of(arguments)
    report = prepare_request(
        request, workers=workers, memory_mb=memory_mb, dry_run=dry_run, force=force, progress=progress
    )
    if per_dataset_sequences is not None and not dry_run:
        surveys = survey_job(request.job, workers or 1)
        write_sequences(per_dataset_sequences, [survey.idx for survey in surveys.values()], request.vocab_size)
    return report


def check(*, workers: int = 1, **arguments: Any) -> CheckReport:
    """Say whether a job will hit its cache, and if not, which argument differs or which data changed."""
    from playhead.megatron.check_job import check_request
    from playhead.megatron.settings import request_of

    return check_request(request_of(arguments), workers)


def tokenize(*arguments: Any, **settings: Any) -> Any:
    """JSON lines -> `.bin` and `.idx`; see `playhead.megatron.tokenizing.tokenize_files`."""
    from playhead.megatron.tokenizing import tokenize_files

    return tokenize_files(*arguments, **settings)


def merge(prefixes: list[str], out: str) -> Any:
    """Several datasets -> one, in the order given."""
    from playhead.megatron.merging import merge_prefixes

    return merge_prefixes(prefixes, out)
