"""Megatron's caches on the terminal: progress while they are built, tables when they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from playhead.cli.screen import console, count, grid, labelled, print_json
from playhead.megatron.cache_report import CacheProgress, CacheReport, CheckReport
from playhead.megatron.merging import WrittenDataset
from playhead.megatron.tokenizing import Tokenized

_SPLITS = ("train", "valid", "test")


def _bars(screen: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)


@contextmanager
def building() -> Iterator[Callable[[CacheProgress], None]]:
    """A bar for each phase, on a terminal; nothing in a pipe. A phase is done when its entry begins the next."""
    with _bars(console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}
        under_way: dict[str, str] = {}

        def show(step: CacheProgress) -> None:
            before = under_way.pop(step.name, None)
            if before is not None:
                bars.advance(tasks[before])
            if step.phase == "done":
                return
            if step.phase not in tasks:
                tasks[step.phase] = bars.add_task(step.phase, total=step.total)
            if step.phase == "indexes":
                bars.advance(tasks[step.phase])
            else:
                under_way[step.name] = step.phase

        yield show


@contextmanager
def tokenizing() -> Iterator[Callable[[int, int], None]]:
    with _bars(console(stderr=True)) as bars:
        task = bars.add_task("parts", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def print_estimate(report: CacheReport) -> None:
    """The estimated cost, before it starts; on a terminal only."""
    screen = console(stderr=True)
    if screen.is_terminal:
        screen.print(_estimate(report))


def _estimate(report: CacheReport) -> str:
    workers = count(report.workers, "worker")
    return (
        f"{decimal(report.num_bytes)} on disk, {decimal(report.memory_bytes)} of memory with {workers}, "
        f"about {report.seconds:.1f} s"
    )


def print_cache(report: CacheReport, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    screen = console()
    labelled(screen, "release", report.release)
    labelled(screen, "world size", f"{report.world_size:,}, data-parallel size {report.data_parallel_size:,}")
    labelled(screen, "batch size", f"{report.global_batch_size:,}, {report.train_iters:,} iterations")
    table = grid("<split", ">samples asked", ">samples in the cache")
    for split, target, lengths in zip(_SPLITS, report.targets, report.lengths, strict=True):
        there = " + ".join(f"{length:,}" for length in lengths) or "-"
        table.add_row(split, "one pass" if target is None else f"{target:,}", there)
    screen.print(table)
    entries = grid("<name", "<of", ">samples", ">epochs", ">size", "<")
    for entry in report.entries:
        prefixes = entry.prefixes[0] if len(entry.prefixes) == 1 else f"{len(entry.prefixes)} datasets"
        epochs = "" if entry.num_epochs is None else f"{entry.num_epochs:,}"
        entries.add_row(entry.name, prefixes, f"{entry.num_samples:,}", epochs, decimal(entry.num_bytes), entry.action)
    screen.print(entries)
    if report.ignored:
        labelled(screen, "ignored", " ".join(report.ignored))
    if report.dry_run:
        labelled(screen, "to do", _estimate(report))
        screen.print("a dry run: nothing was written")
    elif not report.num_bytes:
        screen.print("nothing changed")


def print_check(report: CheckReport, *, asked_fast: bool, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    screen = console()
    table = grid("<name", "<state")
    for finding in report.findings:
        table.add_row(finding.name, finding.state)
    screen.print(table)
    for finding in report.findings:
        for detail in finding.details:
            screen.print(f"{finding.name[:8]} {finding.split}: {detail}")
    for reason in report.fast_load:
        screen.print(f"fast load cannot work: {reason}")
    for reason in report.misread:
        screen.print(f"--per-dataset-sequences-path cannot work: {reason}")
    if report.good:
        screen.print(
            "the job will hit this cache" + (", but not by fast load" if report.fast_load and asked_fast else "")
        )
    else:
        screen.print("the job will not hit this cache as it is: run `playhead megatron prepare-cache` with its flags")


def print_tokenized(done: Tokenized, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(done))
        return
    print_written(done.written, as_json=False)
    rate = done.written.num_tokens / max(done.seconds, 1e-9)
    reused = f", {done.reused_parts:,} of {done.num_parts:,} parts from an earlier run" if done.reused_parts else ""
    console().print(f"{decimal(done.num_bytes)} in {done.seconds:.1f} s, {rate:,.0f} tokens/s{reused}")


def print_written(written: WrittenDataset, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(written))
        return
    documents, sequences = count(written.num_documents, "document"), count(written.num_sequences, "sequence")
    console().print(f"{written.prefix}: {documents}, {sequences}, {written.num_tokens:,} tokens ({written.dtype})")
