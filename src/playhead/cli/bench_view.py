"""A bench on the terminal: progress while it runs; then the verdict in one line, and the figures behind it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import Signals

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from playhead.cli.report import print_error
from playhead.cli.screen import bar, console, count, grid, heading, labelled, print_json
from playhead.cli.stopping import Stopped, stoppable
from playhead.errors import PlayheadError, PrepareError
from playhead.inspect.bench.page import page_of
from playhead.inspect.bench.report import BenchJob, BenchReport, bench
from playhead.inspect.bench.storage_speed import StorageSpeed, measure_storage
from playhead.inspect.bench.sweep import NAMES, Sweep, sweep
from playhead.inspect.bench.text import (
    STAGE_COLUMNS,
    BenchResults,
    facts_of,
    plain_results,
    storage_note,
    sweep_advice,
    trial_cells,
    verdict_of,
    wait_cells,
    worker_cells,
)
from playhead.inspect.bench.values import LoaderSettings
from playhead.store import replacing

_MOST_WAITS = 10
_BAR_WIDTH = 40
_STAGES_WIDTH, _STORAGE_WIDTH = 112, 90  # of terminals that the tables fit in


def run_bench(job: BenchJob, settings: LoaderSettings, *, with_sweep: bool, with_storage: bool) -> BenchResults:
    """Measure what was asked for, the storage first. A signal ends it; what was measured until then is kept."""
    speed, swept, report = None, None, None
    try:
        with stoppable(), _showing() as show:
            if with_storage:
                speed = measure_storage(job.recipe, job.split, job.files, progress=_counted(show), stops=(Stopped,))
                if speed.stopped is not None:
                    return BenchResults(None, speed, None, speed.stopped)
            if with_sweep:
                swept = sweep(job, settings, _counted(show), (Stopped,))
                settings = swept.best
            if swept is None or swept.stopped is None:
                settled = () if swept is None else swept.settled
                report = bench(job, settings, partial(_show_run, show, job), stops=(Stopped,), settled=settled)
    except Stopped as stopped:
        if speed is None and swept is None:
            error = PlayheadError(f"stopped by {stopped.name} before anything was measured", fix="give it more time")
            print_error(error, as_json="--json" in sys.argv[1:])
            raise typer.Exit(stopped.exit_code) from None
        return BenchResults(report, speed, swept, stopped.name)
    stopped_by = (report and report.stopped) or (swept and swept.stopped) or None
    return BenchResults(report, speed, swept, stopped_by)


def exit_code(results: BenchResults) -> int:
    return 0 if results.stopped is None else 128 + Signals[results.stopped]


def _show_run(show: Callable[[str, float], None], job: BenchJob, done: float, steps: int) -> None:
    show(f"{'mock run' if job.mock else 'run'}: {count(steps, 'step')}", done)


def _counted(show: Callable[[str, float], None]) -> Callable[[str, int, int], None]:
    return lambda title, done, total: show(title, done / total)


@contextmanager
def _showing() -> Iterator[Callable[[str, float], None]]:
    """A bar on a terminal; nothing in a pipe."""
    screen = console(stderr=True)
    columns = (TextColumn("{task.description:.60}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("starting", total=1.0)
        yield lambda title, done: bars.update(task, description=title, completed=done)


def write_page(results: BenchResults, recipe: str, path: Path) -> PlayheadError | None:
    """Write the page; if that fails, the error is returned, so that the results can be printed all the same."""
    page = page_of(results, recipe).encode()
    try:
        with replacing(path) as file:
            file.write(page)
    except PrepareError as error:
        return PlayheadError(
            f"{path}: the report could not be written",
            found=error.found,
            fix="bench again with another place for `--html`; the results of this run are printed",
        )
    return None


def print_bench(results: BenchResults, *, as_json: bool) -> None:
    if as_json:
        print_json(plain_results(results))
        return
    screen = console()
    if results.report is not None:
        _print_verdict(screen, results.report)
        _print_run(screen, results.report)
    if results.sweep is not None:
        _print_sweep(screen, results.sweep)
    if results.storage is not None:
        _print_storage(screen, results.storage)


def _print_verdict(screen: Console, report: BenchReport) -> None:
    screen.print(Text(verdict_of(report), "bold"), soft_wrap=True)
    for each in report.bottleneck.also if not report.mock else ():
        labelled(screen, "also", each)
    if report.stopped is not None:
        labelled(screen, "stopped", f"by {report.stopped}; the figures are of the time before")


def _print_run(screen: Console, report: BenchReport) -> None:
    screen.print()
    for label, text in facts_of(report):
        labelled(screen, label, text)
    heading(screen, "seconds by stage")
    screen.print(_stages(report, screen.width < _STAGES_WIDTH))
    if report.slow:
        heading(screen, f"{count(len(report.slow), 'wait')} over five medians")
        slow = grid(">step", ">lane", ">worker", ">waited", "<stage", "<shard")
        for wait in report.slow[:_MOST_WAITS]:
            slow.add_row(*wait_cells(wait))
        screen.print(slow)
        if len(report.slow) > _MOST_WAITS:
            screen.print(f"{len(report.slow) - _MOST_WAITS:,} more, in --json")


def _stages(report: BenchReport, is_narrow: bool) -> Table:
    """The seconds of each worker by stage; for 80 columns without the process, and with fewer digits."""
    names = ["worker", "process", "batches", *STAGE_COLUMNS, "MB/s"]
    rows = [worker_cells(row, report.figures.seconds, 2 if is_narrow else 3) for row in report.workers]
    if is_narrow:
        names[names.index("waited for")] = "waited"
        for line in (names, *rows):
            del line[1]
    table = grid(*(f">{name}" for name in names), gap=1 if is_narrow else 2)
    for row in rows:
        table.add_row(*row)
    return table


def _print_sweep(screen: Console, found: Sweep) -> None:
    heading(screen, f"sweep: {sweep_advice(found)}")
    most = max((point.batches_per_second for point in found.points), default=0.0) or 1.0
    for setting, name in NAMES.items():
        points = found.of(setting)
        if not points:
            continue
        table = grid(f">{name}", ">batches/s", "<", "<limited by")
        for point in points:
            drawn = bar(point.batches_per_second / most, _BAR_WIDTH)
            table.add_row(str(point.value), f"{point.batches_per_second:,.1f}", drawn, point.limit)
        screen.print(table)


def _print_storage(screen: Console, speed: StorageSpeed) -> None:
    heading(screen, "storage by itself")
    screen.print(Text(speed.verdict, "bold"), soft_wrap=True)
    names = ("<reading", ">processes", ">threads", ">bytes/s", ">requests/s", ">latency", ">95 % within", ">cores")
    table = grid(*names, gap=1 if screen.width < _STORAGE_WIDTH else 2)
    for trial in speed.trials:
        table.add_row(*trial_cells(trial))
    screen.print(table)
    labelled(screen, "read", storage_note(speed))
    if speed.stopped is not None:
        labelled(screen, "stopped", f"by {speed.stopped}; the verdict is of the trials before")
