"""What a bench found as words, table cells and JSON: the terminal and the HTML page say the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from playhead.feed.stats import STAGES
from playhead.inspect.bench.figures import WorkerRow
from playhead.inspect.bench.report import BenchReport, rates
from playhead.inspect.bench.slow_waits import PinnedWait
from playhead.inspect.bench.storage_speed import StorageSpeed, StorageTrial
from playhead.inspect.bench.sweep import NAMES, Sweep
from playhead.inspect.readable import readable_bytes, readable_count, readable_seconds, readable_share

STAGE_COLUMNS = (*STAGES, "other", "idle", "ahead", "waited for")
_UNKNOWN = "only the sequence field has a planned length: other fields, maps and collate functions are left out"


@dataclass(frozen=True)
class BenchResults:
    """The run, the storage by itself and the sweep, where they were asked for; `stopped` is the signal that came."""

    report: BenchReport | None
    storage: StorageSpeed | None = None
    sweep: Sweep | None = None
    stopped: str | None = None


def verdict_of(report: BenchReport) -> str:
    """The verdict in one line."""
    if report.mock:
        speed = rates(report.figures)
        return f"the ceiling without reading: {speed['batches']:,.1f} batches/s, {speed['samples']:,.0f} samples/s"
    return str(report.bottleneck)


def facts_of(report: BenchReport) -> list[tuple[str, str]]:
    """The figures of a run as labels and texts."""
    figures, speed = report.figures, rates(report.figures)
    memory, limit = figures.memory, figures.memory.limit
    delivered = (
        f"{readable_count(figures.num_batches, 'batch', 'batches')} of {readable_count(figures.num_steps, 'step')} "
        f"in {readable_seconds(figures.seconds)}; "
        f"the first batch came after {readable_seconds(report.first_seconds)}"
    )
    facts = [("run", f"{figures.settings}; rank {report.rank} of {report.world_size}"), ("delivered", delivered)]
    facts.append(("rate", f"{speed['steps']:,.1f} steps/s  {speed['samples']:,.0f} samples/s"))
    waited = f"waited {readable_seconds(figures.wait_seconds)}, {readable_share(figures.wait_share)} of the time"
    facts.append(("consumer", f"{waited}; the rest is its own"))
    depth = figures.settings.workers * figures.settings.lookahead
    if depth:
        ready = f"{report.queue_depth:.1f} of {readable_count(depth, 'batch', 'batches')}"
        facts.append(("queue", f"{ready} ready when one was asked for"))
    facts.append(("cores", f"{figures.cores_used:.1f} of {figures.cores:g} in use"))
    if report.mock:
        return [*facts, ("left out", _UNKNOWN)]
    total = report.workers[-1]
    storage = f"{readable_bytes(speed['bytes'])}/s"
    if not figures.has_cache:  # of which requests are hits
        storage += f" in {readable_count(figures.num_requests, 'request')}"
    if figures.probe.bytes_per_second:
        storage += (
            f"; a small request takes {readable_seconds(figures.probe.latency_seconds)}, "
            f"large ones get {'at least ' if figures.probe.at_least else ''}"
            f"{readable_bytes(figures.probe.bytes_per_second)}/s"
        )
    facts.append(("storage", storage))
    if figures.has_cache:
        rate = readable_bytes(figures.cache_bytes / figures.seconds)
        copied = readable_bytes(figures.copied_bytes / figures.seconds)
        hits = f"{total.cache_hits:,} hits, {total.cache_misses:,} misses"
        facts.append(("shard cache", f"{hits}; {rate}/s read from it, {copied}/s copied into it"))
    used = f"{readable_bytes(memory.resident_bytes)} resident, {memory.major_faults:,} major faults"
    used += f", {readable_bytes(memory.swap_bytes)} swapped out"
    if limit is not None:
        used += f"; {readable_bytes(limit.used_bytes)} of {readable_bytes(limit.limit_bytes)} in use, "
        used += f"{readable_share(limit.share)} ({limit.origin})"
    return [*facts, ("memory", used)]


def sweep_advice(found: Sweep) -> str:
    """What a sweep recommends, in a line."""
    stopped = f" (stopped by {found.stopped})" if found.stopped else ""
    if not found.points:
        return f"no run was finished{stopped}"
    if not found.recommends:
        return f"too little was measured to recommend settings: give each run more `--seconds`, or more data{stopped}"
    rising = [f"{NAMES[setting]} {getattr(found.best, setting)}" for setting in found.rising]
    still = f"; still rising at {' and '.join(rising)}" if rising else ""
    return f"use {found.best}{still}{stopped}"


def worker_cells(row: WorkerRow, seconds: float, digits: int = 3) -> list[str]:
    """A row of the table of stages, in seconds with so many digits after the point."""
    numbers = [*(row.stages[name] for name in STAGES), row.other, row.idle, row.ahead, row.waited_for]
    return [
        "all" if row.worker is None else str(row.worker),
        "" if row.process is None else str(row.process),
        f"{row.batches:,}",
        *(f"{number:.{digits}f}" for number in numbers),
        f"{row.num_bytes / seconds / 1e6:,.{digits - 1}f}",
    ]


def wait_cells(wait: PinnedWait) -> list[str]:
    late = "" if wait.made_step == wait.step else f" (of step {wait.made_step:,})"
    return [
        f"{wait.step:,}",
        str(wait.lane),
        str(wait.worker),
        readable_seconds(wait.seconds),
        f"{wait.stage}{late}",
        wait.place,
    ]


def trial_cells(trial: StorageTrial) -> list[str]:
    return [
        trial.pattern,
        str(trial.processes),
        str(trial.threads),
        readable_bytes(trial.bytes_per_second),
        f"{trial.requests_per_second:,.0f}",
        readable_seconds(trial.median_seconds),
        readable_seconds(trial.high_seconds),
        f"{trial.cores_used:.1f}",
    ]


def storage_note(speed: StorageSpeed) -> str:
    what = "media file that rows name" if speed.are_media else "shard"
    many = "media files that rows name" if speed.are_media else "shards"
    text = f"{readable_count(speed.num_files, what, many)}, {readable_bytes(speed.size_bytes)}"
    if speed.again:
        text += (
            f"; {readable_share(speed.again)} of what was read had been read before, so some of it came from a cache"
        )
    return text


def plain_results(results: BenchResults) -> dict[str, Any]:
    """The results as JSON values."""
    found: dict[str, Any] = {"stopped": results.stopped}
    if results.report is not None:
        report = results.report
        plain = asdict(replace(report, records=(), state=None))
        del plain["records"], plain["state"], plain["stopped"]
        found |= {"verdict": verdict_of(report), **plain, "rates": rates(report.figures)}
        found["figures"]["wait_share"] = report.figures.wait_share
    if results.sweep is not None:
        found["sweep"] = asdict(results.sweep) | {"recommends": results.sweep.recommends}
    if results.storage is not None:
        found["storage"] = asdict(results.storage)
    return found
