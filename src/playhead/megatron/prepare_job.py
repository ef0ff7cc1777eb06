"""A job -> its cache, entry by entry. Complete and current entries are not changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from playhead.errors import Failure, PlayheadError, PrepareError
from playhead.formats.megatron_idx import Idx
from playhead.jobs import Call, Local, default_workers
from playhead.megatron.arguments import MegatronRequest
from playhead.megatron.build_entry import build_blend, build_dataset, explaining
from playhead.megatron.cache_plan import BlendEntry, CachePlan, Entry, plan_cache
from playhead.megatron.cache_report import CacheProgress, CacheReport, EntryReport
from playhead.megatron.entry_files import manifest_of, num_bytes_of, state_of
from playhead.megatron.estimate import memory_needed, seconds_needed, workers_for
from playhead.megatron.job_indexes import open_indexes
from playhead.megatron.sequences import write_sequences
from playhead.megatron.staging import sweep
from playhead.store import Files, writing_to

Show = Callable[[CacheProgress], None]


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """Options of preparing a cache. `per_dataset_sequences` is a file for the counts of Megatron's fast start."""

    workers: int | None = None
    memory_mb: int | None = None
    dry_run: bool = False
    force: bool = False
    per_dataset_sequences: str | Path | None = None


def prepare_request(
    request: MegatronRequest,
    files: Files,
    options: CacheOptions,
    progress: Show | None = None,
    announce: Callable[[CacheReport], None] | None = None,
) -> CacheReport:
    """Build what is missing, broken or stale. A failure does not stop other datasets; what is finished is kept.

    `announce` is called with the estimated cost before anything is built.
    """
    show: Show = progress or (lambda _: None)
    if not options.dry_run:
        sweep(request.cache)
    count = options.workers or default_workers()
    total = len(request.job.prefixes())
    indexes = open_indexes(request.job, files, count, lambda prefix: show(CacheProgress("indexes", prefix, total)))
    plan = plan_cache(request.job, indexes)
    wanted = [entry for entry in plan.entries if options.force or state_of(request.cache, entry, indexes)[0] != "ok"]
    memory = None if options.memory_mb is None else options.memory_mb << 20
    count = workers_for(wanted, min(count, max(1, len(wanted))), memory)
    report = _report(request, plan, wanted, count, options.dry_run)
    if options.dry_run:
        return report
    if wanted:
        if announce is not None:
            announce(report)
        _make_room(request.cache, report.num_bytes)
        _build(request.cache, wanted, indexes, count, show)
    if options.per_dataset_sequences is not None:
        write_sequences(options.per_dataset_sequences, list(indexes.values()), request.vocab_size)
    return report


def _make_room(cache: Path, num_bytes: int) -> None:
    with explaining(cache), writing_to(cache):
        cache.mkdir(parents=True, exist_ok=True)
        if not os.access(cache, os.W_OK):
            raise PermissionError(13, "no permission to write there")
    free = shutil.disk_usage(cache).free
    if free < num_bytes:
        raise PrepareError(
            f"{cache}: not enough space for the cache",
            found=f"{free:,} bytes free",
            expected=f"{num_bytes:,}",
            fix="free space there, or use another --data-cache-path; nothing was written",
        )


def _build(cache: Path, wanted: list[Entry], indexes: dict[str, Idx], workers: int, show: Show) -> None:
    """Build all entries concurrently: a blend depends on the plan, not on the files of its datasets.

    In threads: kernels release the interpreter lock, and the indexes are shared.
    """
    failures: list[tuple[PlayheadError, Failure]] = []

    def collect(call: Call[None], outcome: Any) -> None:
        if isinstance(outcome, PlayheadError):
            failures.append((outcome, Failure(_title(entries[call.name]), call.name, str(outcome))))

    def build(entry: Entry) -> None:
        def phase(name: str) -> None:
            show(CacheProgress(name, entry.name, len(wanted)))

        manifest = manifest_of(entry, indexes)
        if isinstance(entry, BlendEntry):
            build_blend(cache, entry, manifest, phase)
        else:
            build_dataset(cache, entry, indexes[entry.prefix], manifest, phase)
        phase("done")

    entries = {entry.name: entry for entry in sorted(wanted, key=num_bytes_of, reverse=True)}  # the largest first
    calls = [Call(name, partial(build, entry)) for name, entry in entries.items()]
    Local(workers, threads=True).run(calls, collect)
    if len(failures) == 1:
        raise failures[0][0]
    if failures:
        raise PrepareError(
            f"the cache could not be finished: {len(failures)} datasets failed",
            fix="correct these and run it again; what was finished is kept",
            failures=tuple(failure for _, failure in failures),
        )


def _title(entry: Entry) -> str:
    return f"{entry.split} blend" if isinstance(entry, BlendEntry) else f"{entry.prefix} ({entry.split})"


def _report(request: MegatronRequest, plan: CachePlan, wanted: list[Entry], workers: int, dry_run: bool) -> CacheReport:
    counts = request.counts
    done = "to build" if dry_run else "built"
    names = {entry.name for entry in wanted}
    return CacheReport(
        cache=str(request.cache),
        release=request.release,
        world_size=counts.world_size,
        data_parallel_size=counts.data_parallel_size,
        global_batch_size=counts.global_batch_size,
        train_iters=counts.train_iters,
        targets=counts.samples,
        lengths=plan.lengths,
        entries=tuple(_entry_report(entry, done if entry.name in names else "kept") for entry in plan.entries),
        ignored=request.ignored,
        num_bytes=sum(map(num_bytes_of, wanted)),
        memory_bytes=memory_needed(wanted, workers) if wanted else 0,
        seconds=seconds_needed(wanted, workers),
        workers=workers,
        dry_run=dry_run,
    )


def _entry_report(entry: Entry, action: str) -> EntryReport:
    members = entry.members if isinstance(entry, BlendEntry) else (entry,)
    return EntryReport(
        name=entry.name,
        split=entry.split,
        prefixes=tuple(member.prefix for member in members),
        num_samples=entry.num_samples,
        num_epochs=None if isinstance(entry, BlendEntry) else entry.num_epochs,
        num_bytes=num_bytes_of(entry),
        action=action,
    )
