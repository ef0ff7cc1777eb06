"""Curating on the terminal: progress while it runs, a summary when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table as Grid

from playhead.cli.screen import bar, console, count, grid, percent, print_json
from playhead.curate.config import MEANINGS
from playhead.curate.run import CurateProgress, CurateReport
from playhead.curate.shards import ShardsProgress, ShardsReport
from playhead.curate.summary import CurateSummary, WindowHistogram, percentages, plain, rates

_BAR_WIDTH = 30


@contextmanager
def curating() -> Iterator[Callable[[CurateProgress | ShardsProgress], None]]:
    """A bar on a terminal; nothing in a pipe."""
    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("rows", total=None)

        def show(done: CurateProgress | ShardsProgress) -> None:
            if isinstance(done, CurateProgress):
                bars.update(task, completed=done.done_rows, total=done.total_rows)
            else:
                bars.update(task, description="tars", completed=done.done_shards, total=None)

        yield show


def print_windows(report: CurateReport, *, as_json: bool) -> None:
    if as_json:
        about = {"out": report.out, "changed": report.changed, "resumed_shards": report.num_resumed}
        audio = {} if report.shards is None else {"shards": msgspec.to_builtins(report.shards)}
        print_json({**about, **plain(report.summary), **audio})
        return
    screen, summary = console(), report.summary
    screen.print(_totals(summary))
    screen.print(_losses(summary))
    if summary.rejected:
        screen.print(_rejected(summary))
    for name, title in (("kept_duration", "seconds"), ("kept_speakers", "speakers"), ("kept_overlap", "overlap")):
        if summary.num_kept:
            screen.print(_histogram(summary.histograms[name], title))
    if report.shards is not None:
        _print_shards(screen, report.shards)
    if not report.changed and (report.shards is None or report.shards.kept_shards == report.shards.num_shards):
        screen.print("nothing changed")
    if not report.changed:
        return
    screen.print(f"plots and tables: {report.out}/report.html", soft_wrap=True)
    speed, metrics = rates(summary), summary.metrics
    screen.print(
        f"{count(summary.num_rows, 'row')} in {summary.wall_seconds:.1f} s: {speed['rows_per_second']:,.0f} rows/s, "
        f"{speed['audio_seconds_per_second']:,.0f} s of audio/s, {speed['windows_per_second']:,.0f} windows/s"
    )
    screen.print(
        f"process_entry_time {metrics.process_entry_time:.2f} s, filter_time {metrics.filter_time:.2f} s, "
        f"of {metrics.process_time:.2f} s in all shards"
    )


def _print_shards(screen: Console, shards: ShardsReport) -> None:
    kept = f", {shards.kept_shards:,} of them from before" if shards.kept_shards else ""
    screen.print(
        f"audio: {count(shards.num_windows, 'window')}, {_hours(shards.seconds)} hours, {decimal(shards.num_bytes)} in "
        f"{count(shards.num_shards, 'tar')}{kept}"
    )
    if shards.rejected:
        screen.print(f"audio: {count(len(shards.rejected), 'window')} rejected, listed in audio-rejected.jsonl")


def _totals(summary: CurateSummary) -> Grid:
    table = grid("<", ">number", ">hours")
    table.add_row("rows", f"{summary.num_rows:,}", _hours(summary.seconds_recorded))
    table.add_row("segments", f"{summary.num_segments:,}", _hours(summary.seconds_in))
    table.add_row("windows", f"{summary.num_windows:,}", _hours(summary.seconds_windows))
    table.add_row("windows kept", f"{summary.num_kept:,}", _hours(summary.seconds_kept))
    table.add_row("bytes written", decimal(summary.bytes_out), "")
    return table


def _losses(summary: CurateSummary) -> Grid:
    table = grid("<lost", "<because", ">segments", ">of the segments", ">seconds", ">of the seconds")
    shares = percentages(summary)
    for reason, loss in summary.losses.items():
        of_segments, of_seconds = shares[reason]
        shown = (f"{loss.count:,}", percent(of_segments / 100), f"{loss.seconds:,.1f}", percent(of_seconds / 100))
        table.add_row(f"lost_{reason}", MEANINGS[reason], *shown)
    return table


def _rejected(summary: CurateSummary) -> Grid:
    table = grid("<rejected", ">rows")
    for reason, number in summary.rejected.items():
        table.add_row(reason, f"{number:,}")
    return table


def _histogram(histogram: WindowHistogram, title: str) -> Grid:
    """Bins that hold something, and those between them."""
    table = grid(f"<{title}", "<", ">windows kept")
    filled = [i for i, number in enumerate(histogram.counts) if number]
    most = max(histogram.counts)
    for i in range(filled[0], filled[-1] + 1) if filled else ():
        low, high, number = histogram.edges[i], histogram.edges[i + 1], histogram.counts[i]
        label = f"{round((low + high) / 2)}" if title == "speakers" else f"{low:.4g} to {high:.4g}"
        table.add_row(label, bar(number / most, _BAR_WIDTH), f"{number:,}")
    return table


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f}"
