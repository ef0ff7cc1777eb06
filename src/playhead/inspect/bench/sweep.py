"""Short runs over workers, look-ahead and fetch threads: which values are enough.

One setting is varied at a time, in this order, and keeps the smallest value whose rate is within 5 % of the best, so
that no memory or core is spent for nothing; no workers at all only where any number of them is slower, as they work
while a trainer does. Where the last value is the best by more than that, it is doubled, up to a bound. Every run
continues where the one before it ended: none reads again what another has brought into a cache. Runs that measured too
little are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from playhead.inspect.bench.figures import TooFewBatchesError
from playhead.inspect.bench.process_use import num_cores
from playhead.inspect.bench.report import BenchJob, BenchReport, bench
from playhead.inspect.bench.storage_limit import DEEPEST
from playhead.inspect.bench.storage_probe import StorageProbe
from playhead.inspect.bench.values import Limit, LoaderSettings, Setting
from playhead.read.row_decoder import may_name_remote
from playhead.recipe.storage import stored_files
from playhead.resolve import map_tables
from playhead.resolve.resolve import leaves_by_stream
from playhead.store import num_costly

ENOUGH = 0.95  # of the best rate
NAMES: dict[Setting, str] = {"workers": "workers", "lookahead": "look-ahead", "threads": "fetch threads"}
_MOST: dict[Setting, int] = {"workers": 32, "lookahead": DEEPEST, "threads": DEEPEST}  # to go on doubling to


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
    """The runs, and the settings to use; `stopped` is what interrupted it.

    More of a `settled` setting does not help; one that is `rising` was still gaining at the largest value tried.
    """

    points: tuple[SweepPoint, ...]
    best: LoaderSettings
    stopped: str | None = None
    settled: tuple[Setting, ...] = ()
    rising: tuple[Setting, ...] = ()

    def of(self, setting: Setting) -> tuple[SweepPoint, ...]:
        return tuple(point for point in self.points if point.setting == setting)

    @property
    def recommends(self) -> bool:
        """Whether any run measured enough to compare it."""
        return bool(_known(self.points))


def sweep(
    job: BenchJob,
    settings: LoaderSettings,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    stops: tuple[type[BaseException], ...] = (KeyboardInterrupt,),
) -> Sweep:
    """Vary one setting after another. An exception of `stops` ends it early, with what was found until then."""
    left = {setting: _values(setting, job) for setting in NAMES}
    points: list[SweepPoint] = []
    settled: list[Setting] = []
    rising: list[Setting] = []
    state: dict[str, Any] | None = None
    probe: StorageProbe | None = None

    def found_until(setting: Setting, stopped: str | None) -> Sweep:
        return Sweep(tuple(points), _settled(settings, setting, points), stopped, tuple(settled), tuple(rising))

    for setting, values in left.items():
        if setting != "workers" and settings.workers == 0:  # nothing is made ahead
            values.clear()
        while values:
            tried = with_value(settings, setting, values[0])
            try:
                progress(str(tried), len(points), len(points) + sum(map(len, left.values())))
                report = _bench_on(job, tried, stops, state, probe)
            except stops as error:
                return found_until(setting, getattr(error, "name", "Ctrl-C"))
            points.append(_point(setting, values.pop(0), report))
            state, probe = report.state, report.figures.probe
            if report.stopped is not None:
                return found_until(setting, report.stopped)
            if not values:
                values.extend(_further(setting, points))
        if found := _known(points, setting):
            (rising if is_rising(found) else settled).append(setting)
            settings = _settled(settings, setting, points)
    return found_until(setting, None)


def _known(points: Iterable[SweepPoint], setting: Setting | None = None) -> list[SweepPoint]:
    """The runs (of one setting) that measured enough to be compared."""
    return [point for point in points if point.limit != "unknown" and setting in (None, point.setting)]


def is_rising(points: Sequence[SweepPoint]) -> bool:
    """Whether the last of several values is the best by more than what runs differ by."""
    return len(points) > 1 and enough(points) == points[-1].value == max(point.value for point in points)


def _further(setting: Setting, points: Sequence[SweepPoint]) -> list[int]:
    """The next value to try, where the last one gained."""
    found, last = _known(points, setting), points[-1].value
    gains = bool(found) and found[-1] is points[-1] and is_rising(found)
    return [2 * last] if gains and 2 * last <= _MOST[setting] else []


def _bench_on(
    job: BenchJob,
    settings: LoaderSettings,
    stops: tuple[type[BaseException], ...],
    state: dict[str, Any] | None,
    probe: StorageProbe | None,
) -> BenchReport:
    """A run from a state on, or from the beginning where too little of a finite stream is left."""
    try:
        report = bench(job, settings, stops=stops, state=state, probe=probe)
    except TooFewBatchesError:
        if state is None:
            raise
    else:
        if state is None or report.bottleneck.limit != "unknown" or not report.figures.has_ended:
            return report
    return bench(job, settings, stops=stops, probe=probe)


def with_value(settings: LoaderSettings, setting: Setting, value: int) -> LoaderSettings:
    values: dict[str, Any] = {setting: value}
    return replace(settings, **values)


def _settled(settings: LoaderSettings, setting: Setting, points: Sequence[SweepPoint]) -> LoaderSettings:
    """The settings with the best value that was found for one of them, if any was."""
    found = _known(points, setting)
    return with_value(settings, setting, enough(found)) if found else settings


def enough(points: Sequence[SweepPoint]) -> int:
    """The smallest value whose rate is within 5 % of the best; no workers only where any number of them is slower."""
    best = max(point.batches_per_second for point in points)
    good = [point.value for point in points if point.batches_per_second >= ENOUGH * best]
    some = [value for value in good if value or points[0].setting != "workers"]
    return min(some or good)


def _values(setting: Setting, job: BenchJob) -> list[int]:
    if setting == "workers":
        most = max(2, 2 * int(num_cores()))
        return [value for value in (0, 1, 2, 4, 8, 16) if value <= most]
    if setting == "lookahead":
        return [1, 2, 4, 8]
    return [0, 1, 2, 4] if not job.mock and _looks_ahead(job) else []


def _looks_ahead(job: BenchJob) -> bool:
    """Whether threads ever fetch ahead: for shards, or media that rows may name, whose requests take a round trip."""
    files = job.files or stored_files(job.recipe)
    tables = map_tables(job.recipe, job.split, job.files).values()
    if num_costly(files, [path for table in tables for path in table.index.stamps]):
        return True
    streams = leaves_by_stream(job.recipe, job.split)
    return any(may_name_remote(job.recipe, leaf, files) for leaves in streams for leaf in leaves)


def _point(setting: Setting, value: int, report: BenchReport) -> SweepPoint:
    figures = report.figures
    rate = figures.num_batches / figures.seconds
    return SweepPoint(setting, value, rate, figures.wait_share, report.bottleneck.limit)
