"""Shards that are slow, or impossible, to read in any order."""

from __future__ import annotations

from collections.abc import Iterator

from playhead.errors import PlayheadError
from playhead.inspect.reading import slow_order
from playhead.store import compression_of
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem, problem_of
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
