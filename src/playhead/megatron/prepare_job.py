"""A job -> its cache, entry by entry in threads. What is whole and current is left alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playhead.errors import Failure, PlayheadError, PrepareError
from playhead.jobs import default_workers
from playhead.megatron.arguments import Request
from playhead.megatron.build import build_dataset, build_mixture, explaining
from playhead.megatron.effort import Entry, memory_needed, seconds_needed, workers_for
from playhead.megatron.entry_state import state_of
from playhead.megatron.files import manifest_of, num_bytes_of
from playhead.megatron.idx import Idx
from playhead.megatron.plan import Mixture, Plan, plan_job
from playhead.megatron.report import CacheReport, EntryReport, Progress
from playhead.megatron.staging import sweep
from playhead.megatron.survey import prefixes_of, survey_job
from playhead.store import writing_to

Show = Callable[[Progress], None]


def prepare_request(
    request: Request,
    *,
    workers: int | None = None,
    memory_mb: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    progress: Show | None = None,
    announce: Callable[[CacheReport], None] | None = None,
) -> CacheReport:
    """Build what is missing, broken or stale. A failure does not stop other datasets; what is finished is kept.

    `announce` is told what it will take before anything is built.
    """
    show: Show = progress or (lambda _: None)
    if not dry_run:
        sweep(request.cache)
    count = workers or default_workers()
    total = len(prefixes_of(request.job))
    surveys = survey_job(request.job, count, lambda prefix: show(Progress("indexes", prefix, total)))
    plan = plan_job(request.job, surveys)
    indexes = {prefix: survey.idx for prefix, survey in surveys.items()}
    entries: list[Entry] = [*plan.datasets, *plan.mixtures]
    wanted = [entry for entry in entries if force or state_of(request.cache, entry, indexes)[0] != "ok"]
    count = workers_for(wanted, min(count, max(1, len(wanted))), None if memory_mb is None else memory_mb << 20)
    report = _report(request, plan, entries, wanted, count, dry_run)
    if wanted and not dry_run:
        if announce is not None:
            announce(report)
        _make_room(request.cache, sum(map(num_bytes_of, wanted)))
        _build(request.cache, wanted, indexes, count, show)
    return report


def _make_room(cache: Path, num_bytes: int) -> None:
    with explaining(cache), writing_to(cache):
        cache.mkdir(parents=True, exist_ok=True)
        if not os.access(cache, os.W_OK):
            raise PermissionError(13, "you may not write there")
    free = shutil.disk_usage(cache).free
    if free < num_bytes:
        raise PrepareError(
            f"{cache}: has no room for the cache",
            found=f"{free:,} bytes free",
            expected=f"{num_bytes:,}",
            fix="make room there, or name another --data-cache-path; nothing was written",
        )


def _build(cache: Path, wanted: list[Entry], indexes: dict[str, Idx], workers: int, show: Show) -> None:
    """All entries side by side: a blend follows from the plan, not from the files of its datasets."""
    failures: list[Failure] = []

    def attempt(entry: Entry) -> PlayheadError | None:
        def phase(name: str) -> None:
            show(Progress(name, entry.name, len(wanted)))

        manifest = manifest_of(entry, indexes)
        try:
            if isinstance(entry, Mixture):
                build_mixture(cache, entry, manifest, phase)
            else:
                build_dataset(cache, entry, indexes[entry.prefix], manifest, phase)
        except PlayheadError as error:
            return error
        phase("done")
        return None

    largest_first = sorted(wanted, key=num_bytes_of, reverse=True)
    with ThreadPoolExecutor(workers) as pool:
        for entry, error in zip(largest_first, pool.map(attempt, largest_first), strict=True):
            if error is not None:
                failures.append(Failure(_title(entry), entry.name, str(error)))
                first = error
    if len(failures) == 1:
        raise first
    if failures:
        raise PrepareError(
            f"the cache could not be finished: {len(failures)} datasets failed",
            fix="correct these and run it again; what was finished is kept",
            failures=tuple(failures),
        )


def _title(entry: Entry) -> str:
    return f"{entry.split} blend" if isinstance(entry, Mixture) else f"{entry.prefix} ({entry.split})"


def _report(
    request: Request, plan: Plan, entries: list[Entry], wanted: list[Entry], workers: int, dry_run: bool
) -> CacheReport:
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
        entries=tuple(_entry_report(entry, done if entry.name in names else "kept") for entry in entries),
        ignored=request.ignored,
        num_bytes=sum(map(num_bytes_of, wanted)),
        memory_bytes=memory_needed(wanted, workers) if wanted else 0,
        seconds=seconds_needed(wanted, workers),
        workers=workers,
        dry_run=dry_run,
    )


def _entry_report(entry: Entry, action: str) -> EntryReport:
    members = entry.members if isinstance(entry, Mixture) else (entry,)
    return EntryReport(
        name=entry.name,
        split=entry.split,
        prefixes=tuple(member.prefix for member in members),
        num_samples=entry.num_samples,
        num_epochs=None if isinstance(entry, Mixture) else entry.num_epochs,
        num_bytes=num_bytes_of(entry),
        action=action,
    )
