"""A shard cache on the terminal or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from playhead.cli.screen import console, count, labelled, percent, print_json
from playhead.inspect.cache import CacheCheck, CacheStat

_NS = 1e9


def print_stat(found: CacheStat, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(found) | {"hit_rate": found.hit_rate})
        return
    counts = found.counts
    rate = "" if found.hit_rate is None else f", {percent(found.hit_rate)} of the ranges"
    lines = [
        ("directory", found.directory),
        ("holds", f"{count(found.num_units, 'unit')} of {count(found.num_files, 'file')}, {decimal(found.num_bytes)}"),
        ("of earlier runs", f"{count(found.num_unchecked, 'unit')} to be checked, {decimal(found.unchecked_bytes)}"),
        ("being copied", f"{count(found.num_parts, 'unit')}, {decimal(found.part_bytes)} so far"),
        ("used by", _ranks(found)),
        ("filler", "runs" if found.filler_runs else "does not run"),
        ("hits", f"{counts['hits']:,}, {decimal(counts['hit_bytes'])}{rate}"),
        ("misses", f"{counts['misses']:,}, {decimal(counts['direct_bytes'])} read past the cache"),
        ("time blocked", f"{counts['blocked_ns'] / _NS:,.1f} s, all readers together"),
        ("copied", f"{count(counts['copied_units'], 'unit')}, {decimal(counts['copied_bytes'])}"),
        ("kept", f"{count(counts['kept_units'], 'unit')} of earlier runs, {decimal(counts['kept_bytes'])}"),
        ("evicted", f"{count(counts['evictions'], 'unit')}, {decimal(counts['evicted_bytes'])}"),
        ("not copied", f"{counts['failures']:,} failures of the storage, {counts['damaged_units']:,} damaged copies"),
    ]
    if found.missing:
        lines.append(("missing", f"{', '.join(found.missing)}: removed since; the next loader makes them anew"))
    screen = console()
    for label, text in lines:
        labelled(screen, label, text)


def _ranks(found: CacheStat) -> str:
    if not found.ranks:
        return "nobody"
    return ", ".join(f"rank {rank['rank']} of {rank['world_size']} at step {rank['step']:,}" for rank in found.ranks)


@contextmanager
def checking() -> Iterator[Callable[[int, int], None]]:
    """A bar of the bytes; nothing in a pipe."""
    screen = console(stderr=True)
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        task = bars.add_task("bytes", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def print_check(found: CacheCheck, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    screen = console()
    for name in found.damaged:
        labelled(screen, "damaged", f"{name}; removed, it is copied again when it is needed")
    right = found.num_units - len(found.damaged)
    screen.print(
        f"{count(right, 'unit')} of {found.num_units:,} as they were copied, {decimal(found.num_bytes)} in all"
    )


def print_cleared(directory: str, num_units: int, num_bytes: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"directory": directory, "num_units": num_units, "num_bytes": num_bytes})
    else:
        console().print(f"{directory}: {count(num_units, 'unit')} removed, {decimal(num_bytes)}")
