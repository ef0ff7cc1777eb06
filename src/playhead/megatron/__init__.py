"""Megatron's files without Megatron. In: a training job's arguments and `.idx` files, or JSON lines.

Out: the dataset caches that the job will look for, byte for byte; `.bin`/`.idx` datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.megatron.cache_report import CacheProgress, CacheReport, CheckReport
    from playhead.megatron.merging import WrittenDataset
    from playhead.megatron.tokenizing import Tokenized

__all__ = ["check", "merge", "prepare", "tokenize"]


def prepare(
    *,
    workers: int | None = None,
    memory_mb: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    per_dataset_sequences: str | Path | None = None,
    progress: Callable[[CacheProgress], None] | None = None,
    **arguments: Any,
) -> CacheReport:
    """Build the caches of a job. `arguments` are its flags with underscores: `data_path=[0.3, "a", 0.7, "b"]`.

    Arguments of Playhead itself: `megatron_release`, `like`, `keep_partial_validation_sequence`, `at_iteration`.
    """
    from playhead.megatron.arguments import read_request
    from playhead.megatron.prepare_job import CacheOptions, prepare_request
    from playhead.store import all_files

    options = CacheOptions(
        workers=workers,
        memory_mb=memory_mb,
        dry_run=dry_run,
        force=force,
        per_dataset_sequences=per_dataset_sequences,
    )
    return prepare_request(read_request(named=arguments), all_files(), options, progress)


def check(*, workers: int | None = None, **arguments: Any) -> CheckReport:
    """Check whether a job will hit its cache, and if not, which argument differs or which data changed."""
    from playhead.megatron.arguments import read_request
    from playhead.megatron.check_job import check_request
    from playhead.store import all_files

    return check_request(read_request(named=arguments), all_files(), workers)


def tokenize(paths: Sequence[str | Path], tokenizer: str | Path, out: str | Path, **settings: Any) -> Tokenized:
    """JSON lines -> `.bin` and `.idx`; `settings` are those of `playhead.megatron.tokenizing.tokenize_files`."""
    from playhead.megatron.tokenizing import tokenize_files
    from playhead.store import all_files

    return tokenize_files(all_files(), paths, tokenizer, out, **settings)


def merge(prefixes: list[str], out: str) -> WrittenDataset:
    """Several datasets -> one, in the order given."""
    from playhead.megatron.merging import merge_prefixes
    from playhead.store import all_files

    return merge_prefixes(all_files(), prefixes, out)
