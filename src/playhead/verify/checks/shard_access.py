"""Shards that are slow, or impossible, to read in any order; a shard cache that is too small, or has no room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from rich.filesize import decimal

from playhead.errors import PlayheadError
from playhead.inspect.reading import slow_order
from playhead.inspect.shard_peak import shard_peaks
from playhead.plan.plan import Plan
from playhead.store import compression_of
from playhead.store.shard_cache.directory import CacheDirectory
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.machine_limits import existing
from playhead.verify.checks.registry import check

_MOST_OPENED = 8


@check("PH014", "warning", "shards are compressed: rows in any order are slow, or impossible", "recipe")
def compressed_shards(context: Context) -> Iterator[Problem]:
    for source in context.sources:
        shards = context.shards[source.leaf.path]
        paths = [] if isinstance(shards, PlayheadError) else [path for shard in shards for _, path in shard.files]
        packed = [path for path in paths if compression_of(path) is not None]
        if not packed:
            continue
        refused = next(filter(None, (_refusal(path, context) for path in packed[:_MOST_OPENED])), None)
        if refused is not None:
            yield problem_of(refused, source.leaf.path, "error")
        elif source.leaf.source.shuffle == "global":
            yield Problem(
                source.leaf.path,
                f'"{source.name}" reads rows of compressed files in any order',
                found=f"{len(packed):,} of {len(paths):,} files, with `shuffle: global`",
                expected="files that are not compressed: of these, up to half a megabyte is decompressed for each row",
                fix="decompress them, or write `shuffle: shards`",
            )


def _refusal(path: str, context: Context) -> PlayheadError | None:
    """Why a file cannot be read in the middle. A gzip file can, once it is prepared."""
    if compression_of(path) != ".zst":
        return None
    try:
        context.files.stamp(path)
    except PlayheadError as error:
        return error
    return None


@check("PH015", "warning", "an order makes a reader decode whole blocks for single rows", "recipe", "tables")
def slow_orders(context: Context) -> Iterator[Problem]:
    for source in context.trained:
        slow = slow_order(source.leaf, source.table)
        if slow is not None:
            yield Problem(f"{source.leaf.path}.shuffle", f"{source.name}: {slow.problem}", fix=f"write {slow.remedy}")


@check("PH016", "warning", "the shard cache is smaller than what is in use at a time, or its disk is", "recipe", "plan")
def small_shard_cache(context: Context) -> Iterator[Problem]:
    cache = context.recipe.shard_cache
    if cache is None or not isinstance(context.plan, Plan):
        return
    in_use = sum(_bytes_in_use(context.plan, context))
    if cache.unit == "shard" and cache.max_bytes < in_use:
        yield Problem(
            "shard_cache.max_bytes",
            "the shard cache is smaller than the shards that are in use at a time",
            found=f"{decimal(cache.max_bytes)}; up to {decimal(in_use)} are in use",
            expected="room for them, and for the next: what does not fit is read from its storage row by row",
            fix="raise it, lower `shuffle_group`, write `shuffle: shards`, or write `unit: range`",
        )
    directory = existing(Path(cache.dir))
    held = sum(unit.num_bytes for unit in CacheDirectory(Path(cache.dir)).stored())
    free = shutil.disk_usage(directory).free + held
    if free < cache.max_bytes:
        yield Problem(
            "shard_cache.max_bytes",
            "the disk of the shard cache has less room than it may take",
            found=f"{decimal(free)} under {directory}",
            expected=decimal(cache.max_bytes),
            fix="lower it, free some space, or name a directory on another disk with `shard_cache.dir`",
        )


def _bytes_in_use(plan: Plan, context: Context) -> Iterator[int]:
    """The most bytes of each source that are in use at a time: of an order over all rows, all of them."""
    tables = {source.table.name: source.table for source in context.trained}
    for stream in plan.streams:
        for order, name in zip(stream.orders, stream.source_names, strict=True):
            if order.shuffle == "global" and name in tables:
                yield int(tables[name].unit_bytes.sum())
        yield from (peak.num_bytes for peak in shard_peaks(stream, tables))
