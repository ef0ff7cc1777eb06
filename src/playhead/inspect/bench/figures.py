"""A recording added up: the figures that a verdict is made of, and a row for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from playhead.errors import EndOfStreamError
from playhead.feed.stats import STAGES
from playhead.inspect.bench.memory_pressure import UseReading, memory_use, read_use
from playhead.inspect.bench.recording import BatchRecord, Recording
from playhead.inspect.bench.slow_waits import MEDIANS, making_seconds, slow_limit
from playhead.inspect.bench.storage_probe import SHARDS, ReadFiles, StorageProbe
from playhead.inspect.bench.values import LoaderSettings, RunFigures, Setting


class TooFewBatchesError(EndOfStreamError):
    """A run ended before it had delivered enough batches to be judged."""


@dataclass(frozen=True)
class WorkerRow:
    """What a worker did in a run, or all together (`worker` None). Seconds; `ahead` is the part of open, read
    and decode that it did not wait for, `waited_for` what the trainer waited for its batches.
    """

    worker: int | None
    process: int | None
    batches: int
    stages: dict[str, float]
    ahead: float
    other: float
    idle: float
    waited_for: float
    num_requests: int
    num_bytes: int
    cache_hits: int
    cache_misses: int
    cache_bytes: int


def measured_records(recording: Recording) -> tuple[list[BatchRecord], float]:
    """The records after the workers had started, and the moment from which they count."""
    records = recording.records
    first = min(recording.num_warm or 1, len(records) - 1)
    if first < 1:
        ended, more_time = recording.has_ended, "give it more time or steps (--seconds, --steps)"
        raise TooFewBatchesError(
            "too few batches were delivered to say what limits loading",
            found=f"{len(records)} in all{', then the stream ended' if ended else ''}",
            expected="at least 2",
            fix="bench with more data, or with smaller batches" if ended else more_time,
        )
    return records[first:], records[first - 1].given


def figures_of(
    recording: Recording,
    settings: LoaderSettings,
    cores: float,
    probe: StorageProbe,
    *,
    is_trained: bool,
    has_cache: bool = False,
    read: ReadFiles = SHARDS,
    settled: tuple[Setting, ...] = (),
) -> RunFigures:
    records, begin = measured_records(recording)
    late = _late_seconds(records)
    waits = sum(record.wait for record in records)
    seconds = max(records[-1].given - begin, 1e-9)
    parts = [record.timing.own_seconds() for record in records]
    ready = sorted(map(_ready_seconds, records))
    readings = recording.memory[recording.memory_from :]
    timings = [record.timing for record in records]
    return RunFigures(
        settings=settings,
        seconds=seconds,
        num_batches=len(records),
        num_steps=sum(record.ends_step for record in records),
        num_samples=sum(record.num_samples for record in records),
        wait_seconds=waits,
        ready_seconds=sum(ready[:-1]),
        longest_ready_seconds=ready[-1],
        uneven_seconds=sum(sorted(late)[:-1]),
        trainer_seconds=max(0.0, seconds - waits),
        busy_seconds=sum(timing.ended - timing.began for timing in timings),
        busy_share=_busy_share(records, begin) if settings.workers else 1.0,
        long_batch_seconds=sorted(timing.ended - timing.began for timing in timings)[-2:][0],
        stages={name: sum(part[name] for part in parts) for name in parts[0]},
        num_requests=sum(timing.num_requests for timing in timings),
        num_bytes=sum(timing.num_bytes for timing in timings),
        probe=probe,
        cores_used=min(cores, _loader_seconds(readings) / seconds),  # in a short run the clocks differ
        others_cores=min(cores, _others_seconds(readings) / seconds),
        cores=cores,
        memory=memory_use(readings or [read_use()]),
        is_trained=is_trained,
        has_cache=has_cache,
        cache_bytes=sum(timing.cache_bytes for timing in timings),
        copied_bytes=recording.copied_bytes,
        waits_for_media=read.media is not None,
        requests_cost=read.requests_cost,
        has_ended=recording.has_ended,
        settled=settled,
    )


def _ready_seconds(record: BatchRecord) -> float:
    """How much of a wait was before a worker began with the batch, or after it was made."""
    return max(0.0, record.wait - making_seconds(record))


def _late_seconds(records: Sequence[BatchRecord]) -> list[float]:
    """For each long wait for a batch that took long itself, how much of it the batch was being made."""
    longest_wait = slow_limit(records)
    longest_batch = MEDIANS * median(record.timing.ended - record.timing.began for record in records)
    return [
        making_seconds(record)
        for record in records
        if record.wait > longest_wait and record.timing.ended - record.timing.began > longest_batch
    ]


def _busy_share(records: Sequence[BatchRecord], begin: float) -> float:
    """How busy the workers were, each up to the end of its last batch that was delivered: of later ones nothing is
    known.
    """
    busy, until = 0.0, dict[int, float]()
    for record in records:
        timing = record.timing
        busy += max(0.0, timing.ended - max(begin, timing.began))
        until[record.worker] = max(until.get(record.worker, begin), timing.ended)
    known = sum(end - begin for end in until.values())
    return min(1.0, busy / known) if known > 0 else 0.0


def _loader_seconds(readings: Sequence[UseReading]) -> float:
    """The processor time of the loader's processes."""
    if not readings:
        return 0.0
    before = {pid: use.cpu_seconds for pid, use in readings[0].processes.items()}
    return sum(use.cpu_seconds - before.get(pid, 0.0) for pid, use in readings[-1].processes.items())


def _others_seconds(readings: Sequence[UseReading]) -> float:
    """The processor time of all other processes of the machine."""
    if not readings:
        return 0.0
    return max(0.0, readings[-1].machine_seconds - readings[0].machine_seconds - _loader_seconds(readings))


def worker_rows(recording: Recording) -> list[WorkerRow]:
    """A row for each worker in order, then their sum."""
    records, begin = measured_records(recording)
    end = records[-1].given
    by_worker: dict[int, list[BatchRecord]] = {}
    for record in records:
        by_worker.setdefault(record.worker, []).append(record)
    rows = [_row(worker, by_worker[worker], end - begin) for worker in sorted(by_worker)]
    total = _row(None, records, 0.0)
    return [*rows, WorkerRow(**{**vars(total), "idle": sum(row.idle for row in rows)})]


def _row(worker: int | None, records: Sequence[BatchRecord], seconds: float) -> WorkerRow:
    timings = [record.timing for record in records]
    busy = sum(timing.ended - timing.began for timing in timings)
    return WorkerRow(
        worker=worker,
        process=None if worker is None else timings[0].process,
        batches=len(records),
        stages={name: sum(getattr(timing, name) for timing in timings) for name in STAGES},
        ahead=sum(timing.ahead for timing in timings),
        other=sum(timing.own_seconds()["other"] for timing in timings),
        idle=max(0.0, seconds - busy),
        waited_for=sum(record.wait for record in records),
        num_requests=sum(timing.num_requests for timing in timings),
        num_bytes=sum(timing.num_bytes for timing in timings),
        cache_hits=sum(timing.cache_hits for timing in timings),
        cache_misses=sum(timing.cache_misses for timing in timings),
        cache_bytes=sum(timing.cache_bytes for timing in timings),
    )
