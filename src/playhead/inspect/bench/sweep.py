"""Short runs over workers, look-ahead and fetch threads: which values are enough.

One setting is varied at a time, in this order, and keeps the smallest value whose rate is within 5 % of the best, so
that no memory or core is spent for nothing. Every run continues where the one before it ended: none reads again what
another has brought into a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from playhead.inspect.bench.figures import TooFewBatchesError
from playhead.inspect.bench.process_use import num_cores
from playhead.inspect.bench.report import BenchJob, BenchReport, bench
from playhead.inspect.bench.storage_probe import StorageProbe
from playhead.inspect.bench.values import Limit, LoaderSettings
from playhead.recipe.storage import stored_files
from playhead.resolve import map_tables
from playhead.store import num_costly

Setting = Literal["workers", "lookahead", "threads"]

ENOUGH = 0.95  # of the best rate
NAMES: dict[Setting, str] = {"workers": "workers", "lookahead": "look-ahead", "threads": "fetch threads"}
_MOST_WORKERS = 16


@dataclass(frozen=True)
class SweepPoint:
    """A run of a sweep: the setting that was varied, its value, the rate of batches, and what limited it."""

    setting: Setting
    value: int
    batches_per_second: float
    wait_share: float
    limit: Limit


@dataclass(frozen=True)
class Sweep:
    """The runs, and the settings to use; `stopped` is what interrupted it."""

    points: tuple[SweepPoint, ...]
    best: LoaderSettings
    stopped: str | None = None

    def of(self, setting: Setting) -> tuple[SweepPoint, ...]:
        return tuple(point for point in self.points if point.setting == setting)


def sweep(
    job: BenchJob,
    settings: LoaderSettings,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,),
) -> Sweep:
    """Vary one setting after another. An exception of `stops` ends it early, with what was found until then."""
    chosen = {setting: _values(setting, job) for setting in NAMES}
    total = sum(map(len, chosen.values()))
    points: list[SweepPoint] = []
    state: dict[str, Any] | None = None
    probe: StorageProbe | None = None
    for setting, values in chosen.items():
        for value in values:
            tried = with_value(settings, setting, value)
            try:
                progress(str(tried), len(points), total)
                report = _bench_on(job, tried, stops, state, probe)
            except stops as error:
                return Sweep(tuple(points), _settled(settings, setting, points), getattr(error, "name", "Ctrl-C"))
            points.append(_point(setting, value, report))
            state, probe = report.state, report.figures.probe
            if report.stopped is not None:
                return Sweep(tuple(points), _settled(settings, setting, points), report.stopped)
        settings = _settled(settings, setting, points)
    return Sweep(tuple(points), settings)


def _bench_on(
    job: BenchJob,
    settings: LoaderSettings,
    stops: tuple[type[BaseException], ...],
    state: dict[str, Any] | None,
    probe: StorageProbe | None,
) -> BenchReport:
    """A run from a state on, or from the beginning where too little of a finite stream is left."""
    try:
        return bench(job, settings, stops=stops, state=state, probe=probe)
    except TooFewBatchesError:
        if state is None:
            raise
        return bench(job, settings, stops=stops, probe=probe)


def with_value(settings: LoaderSettings, setting: Setting, value: int) -> LoaderSettings:
    values: dict[str, Any] = {setting: value}
    return replace(settings, **values)


def _settled(settings: LoaderSettings, setting: Setting, points: list[SweepPoint]) -> LoaderSettings:
    """The settings with the best value that was found for one of them, if any was tried."""
    found = [point for point in points if point.setting == setting]
    return with_value(settings, setting, enough(found)) if found else settings


def enough(points: list[SweepPoint]) -> int:
    """The smallest value whose rate is within 5 % of the best."""
    best = max(point.batches_per_second for point in points)
    return min(point.value for point in points if point.batches_per_second >= ENOUGH * best)


def _values(setting: Setting, job: BenchJob) -> list[int]:
    if setting == "workers":
        most = min(_MOST_WORKERS, max(2, 2 * int(num_cores())))
        return [value for value in (1, 2, 4, 8, 16) if value <= most]
    if setting == "lookahead":
        return [1, 2, 4, 8]
    tables = map_tables(job.recipe, job.split, job.files).values()
    paths = [path for table in tables for path in table.index.stamps]
    return [0, 1, 2, 4] if not job.mock and num_costly(job.files or stored_files(job.recipe), paths) else []


def _point(setting: Setting, value: int, report: BenchReport) -> SweepPoint:
    figures = report.figures
    rate = figures.num_batches / figures.seconds
    return SweepPoint(setting, value, rate, figures.wait_share, report.bottleneck.limit)
