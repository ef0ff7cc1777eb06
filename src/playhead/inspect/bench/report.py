"""A bench: the real pipeline (or the mock of it) run for a while, judged, and reported."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from playhead.errors import StoreError, WorkerError
from playhead.feed.delivery import Delivery
from playhead.feed.describe import Streams
from playhead.feed.loader import Loader
from playhead.feed.tasks import Work
from playhead.index.table import Table
from playhead.inspect.bench.bottleneck import judge, killed_for_memory
from playhead.inspect.bench.figures import WorkerRow, figures_of, measured_records, worker_rows
from playhead.inspect.bench.memory_pressure import memory_limits
from playhead.inspect.bench.mock import mock_loader
from playhead.inspect.bench.process_use import num_cores
from playhead.inspect.bench.recording import BatchRecord, BenchLimits, Progress, Recording, record
from playhead.inspect.bench.slow_waits import PinnedWait, slow_waits
from playhead.inspect.bench.storage_probe import (
    NO_PROBE,
    SHARDS,
    ReadFiles,
    StorageProbe,
    files_waited_for,
    probe_storage,
    stamps_to_probe,
)
from playhead.inspect.bench.values import Bottleneck, LoaderSettings, RunFigures, Setting
from playhead.recipe.storage import stored_files
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import Files
from playhead.store.shard_cache.counters import sum_counters
from playhead.store.shard_cache.directory import CacheDirectory


@dataclass(frozen=True)
class BenchJob:
    """What to run: a prepared recipe, or an evaluation set of it, as one rank sees it; `mock` reads no file."""

    recipe: Recipe
    limits: BenchLimits = field(default_factory=BenchLimits)
    split: str | None = None
    rank: int | None = None
    world_size: int | None = None
    files: Files | None = None
    mock: bool = False

    def loader(self, settings: LoaderSettings) -> Delivery:
        if self.mock:
            return mock_loader(self.recipe, settings, self.split, (self.rank, self.world_size), self.files)
        return Loader(
            self.recipe,
            split=self.split,
            rank=self.rank,
            world_size=self.world_size,
            workers=settings.workers,
            worker_kind=settings.worker_kind,
            lookahead=settings.lookahead,
            fetch_threads=settings.threads,
            decode_threads=settings.decode_threads,
            files=self.files,
        )


@dataclass(frozen=True)
class BenchReport:
    """What a bench found. `records` are all batches, of which the first `num_warm` do not count; `stopped` says what
    interrupted it.
    """

    figures: RunFigures
    bottleneck: Bottleneck
    workers: tuple[WorkerRow, ...]
    slow: tuple[PinnedWait, ...]
    first_seconds: float
    queue_depth: float
    lanes: int
    rank: int
    world_size: int
    mock: bool
    records: tuple[BatchRecord, ...]
    num_warm: int
    stopped: str | None = None
    state: dict[str, Any] | None = None


def bench(
    job: BenchJob,
    settings: LoaderSettings | None = None,
    progress: Progress = lambda _done, _steps: None,
    *,
    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,),
    state: dict[str, Any] | None = None,
    probe: StorageProbe | None = None,
    settled: tuple[Setting, ...] = (),
) -> BenchReport:
    """Run a job and judge it. An exception of `stops` ends the run early; what was measured until then is judged.

    `state` is where to begin, by default at the beginning; `probe` what the storage gives by itself, if it is known.
    More of a `settled` setting is not advised: a sweep has shown that it does not help.
    """
    settings = settings or LoaderSettings()
    recording, stopped, limits = Recording(partial(_copied_bytes, job)), None, memory_limits()
    with job.loader(settings) as loader:
        if state is not None:
            loader.load_state_dict(state)
        try:
            record(loader, job.limits, settings, recording, progress)
        except stops as error:
            if len(recording.records) < 2:
                raise
            stopped = _name_of(error)
        except WorkerError as error:
            raise killed_for_memory(error, settings, limits, memory_limits()) or error from None
        queue_depth = loader.stats().queue_depth_mean
        after = None if loader.finished else loader.state_dict()
        about = {"lanes": loader.lanes, "rank": loader.rank, "world_size": loader.world_size}
    recording.count_enough(settings)
    tables = map_tables(job.recipe, job.split, job.files)
    records, _ = measured_records(recording)
    read = SHARDS
    if not job.mock:
        storage = job.files or stored_files(job.recipe)
        read = files_waited_for(storage, tables.values(), [record.timing for record in records])
        try:
            probe = probe if probe is not None or stopped else _probe(storage, tables.values(), read)
        except stops as error:
            stopped = _name_of(error)
    figures = figures_of(
        recording,
        settings,
        num_cores(),
        probe or NO_PROBE,
        is_trained=job.limits.step_seconds > 0,
        has_cache=job.recipe.shard_cache is not None,
        read=read,
        settled=settled,
    )
    streams = [[(leaf, tables[leaf.path]) for leaf in leaves] for leaves in leaves_by_stream(job.recipe, job.split)]
    return BenchReport(
        figures=figures,
        bottleneck=judge(figures),
        workers=tuple(worker_rows(recording)),
        slow=() if job.mock else tuple(slow_waits(records, shards_of(streams))),
        first_seconds=recording.first_seconds,
        queue_depth=queue_depth,
        mock=job.mock,
        records=tuple(recording.records),
        num_warm=len(recording.records) - len(records),
        stopped=stopped,
        state=after,
        **about,
    )


def _probe(files: Files, tables: Collection[Table], read: ReadFiles) -> StorageProbe:
    """What the storage gives by itself; where it fails, the run is judged without it."""
    try:
        return probe_storage(files, stamps_to_probe(files, tables, read))
    except StoreError:
        return NO_PROBE


def _name_of(stop: BaseException) -> str:
    return str(getattr(stop, "name", "Ctrl-C"))


def shards_of(streams: Streams) -> Callable[[Work], str]:
    """Names the shards that a micro-batch reads: the one with most of its rows, and how many others there are."""

    def place(work: Work) -> str:
        request = work.request
        counts: dict[str, int] = {}
        for number in sorted(set(request.picks.source.tolist())):
            rows = request.picks.row[request.picks.source == number]
            for shard in streams[request.stream][number][1].locate(rows).shards:
                counts[shard.name] = counts.get(shard.name, 0) + 1
        first, *others = sorted(counts, key=lambda name: -counts[name])
        return f"{first} and {len(others)} more" if others else first

    return place


def _copied_bytes(job: BenchJob) -> int:
    """What the filler of the shard cache has copied so far."""
    cache = job.recipe.shard_cache
    if cache is not None:
        with suppress(OSError):  # a full disk has none
            return sum_counters(CacheDirectory(Path(cache.dir))).copied_bytes
    return 0


def rates(figures: RunFigures) -> dict[str, float]:
    """What a run delivered and read from storage in a second."""
    counts = {"steps": figures.num_steps, "batches": figures.num_batches, "samples": figures.num_samples}
    return {name: count / figures.seconds for name, count in {**counts, "bytes": figures.stored_bytes}.items()}
