"""Samples that are there twice: inside a source, in two sources, in training and in evaluation.

Ids are compared by the hashes in the indexes, which are sorted: of very many, those in a first part of all hashes, the
same of every source, so that equal ids meet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from playhead.errors import PlayheadError
from playhead.formats.registry import format_of
from playhead.index.bits import contains
from playhead.types import IntArray, UIntArray
from playhead.verify.checks.context import Context, PreparedSource
from playhead.verify.checks.finding import Problem
from playhead.verify.checks.registry import check
from playhead.verify.checks.wording import listed

_MOST_IDS = 1 << 22


@dataclass(frozen=True)
class _Ids:
    """Hashes of ids of selected rows of a source, rising, with their raw rows."""

    source: PreparedSource
    hashes: UIntArray
    rows: IntArray

    def described(self, at: int) -> str:
        """A row and where it is."""
        (row,) = self.source.table.selection.selected_rows(self.rows[at : at + 1])
        return f'row {int(row):,} of "{self.source.name}" ({self.source.table.place(int(row))})'


def _ids(sources: Sequence[PreparedSource]) -> list[_Ids]:
    """The hashes of the sources that have ids, up to the same one of each."""
    known = [(source, source.table.index.keys) for source in sources]
    total = sum(len(keys) for _, keys in known if keys is not None)
    last = (1 << 64) - 1 if total <= _MOST_IDS else (_MOST_IDS << 64) // total
    found = []
    for source, keys in known:
        if keys is None:
            continue
        end = bisect_right(range(len(keys)), last, key=lambda i, keys=keys: int(keys[i, 0]))  # type: ignore[misc]
        hashes, rows = np.ascontiguousarray(keys[:end, 0]), keys[:end, 1].astype(np.int64)
        bitmap = source.table.selection.bitmap
        if bitmap is not None:
            kept = contains(bitmap, rows)
            hashes, rows = hashes[kept], rows[kept]
        found.append(_Ids(source, hashes, rows))
    return found


@check("PH027", "warning", "an id occurs twice in a source; a note where ids are not indexed", "recipe", "tables")
def repeated_ids(context: Context) -> Iterator[Problem]:
    for ids in _ids(context.trained):
        (twice,) = np.nonzero(ids.hashes[1:] == ids.hashes[:-1])
        if len(twice):
            at = int(twice[0])
            yield Problem(
                ids.source.leaf.path,
                f'ids occur more than once in "{ids.source.name}"',
                found=f"{len(twice):,} of {len(ids.hashes):,}: {ids.described(at)} and {ids.described(at + 1)}",
                expected="an id of its own for every row: such samples are seen twice as often",
                fix="remove one of the two, for example with `drop_rows`",
            )
    without = [source.leaf for source in context.trained if source.table.index.keys is None]
    if without:
        names = listed(leaf.source.name for leaf in without)
        yield Problem(
            without[0].path,
            f"duplicates are not looked for in sources whose ids are not indexed: {names}",
            found=f"no `ids` in {len(without):,} of {len(context.trained):,} sources",
            fix=f"add `ids: {format_of(without[0].source, without[0].path).default_id or 'id'}` (the field that holds "
            "the id), and run `playhead prepare`",
            severity="note",
        )


@check("PH028", "warning", "two sources share files or ids", "recipe", "tables")
def shared_rows(context: Context) -> Iterator[Problem]:
    owners: dict[str, PreparedSource] = {}
    told: set[tuple[str, str]] = set()
    for source in context.trained:
        for path in _paths(context, source):
            owner = owners.setdefault(path, source)
            if owner is not source and (owner.name, source.name) not in told:
                told.add((owner.name, source.name))
                yield _twice(source, f'"{source.name}" and "{owner.name}" share files', path)
    yield from (
        _twice(second.source, f'"{second.source.name}" and "{first.source.name}" share ids', found)
        for first, second, found in _overlaps(_ids(context.trained), None)
        if (first.source.name, second.source.name) not in told
    )


def _twice(source: PreparedSource, problem: str, found: str) -> Problem:
    expected = "every sample in one source: its share is the sum of both"
    return Problem(source.leaf.path, problem, found, expected, "remove it from one of the two")


@check("PH029", "error", "rows of an evaluation set are also trained on", "recipe", "tables")
def trained_evaluation(context: Context) -> Iterator[Problem]:
    evaluated = [source for source in context.prepared if source.leaf.evaluation is not None]
    trained = {path: source for source in context.trained for path in _paths(context, source)}
    shared: set[str] = set()
    for source in evaluated:
        path = next((path for path in _paths(context, source) if path in trained), None)
        if path is not None:
            shared.add(source.name)
            yield _leak(source, trained[path], path)
    others = [source for source in evaluated if source.name not in shared]
    for first, second, found in _overlaps(_ids([*context.trained, *others]), {source.name for source in others}):
        yield _leak(second.source, first.source, found)


def _leak(source: PreparedSource, trained: PreparedSource, found: str) -> Problem:
    return Problem(
        source.leaf.path,
        f'rows of "{source.name}" ({source.leaf.evaluation}) are also trained on, in "{trained.name}"',
        found,
        "rows that are not trained on",
        f"list their ids in a file, and name it in `drop_ids` of {trained.leaf.path}",
    )


def _overlaps(found: list[_Ids], evaluated: set[str] | None) -> Iterator[tuple[_Ids, _Ids, str]]:
    """Pairs of sources that share ids: of training sources, or (`evaluated`) of a training and an evaluation one."""
    if len(found) < 2:
        return
    hashes = np.concatenate([ids.hashes for ids in found])
    owner = np.repeat(np.arange(len(found)), [len(ids.hashes) for ids in found])
    order = np.lexsort((owner, hashes))
    hashes, owner = hashes[order], owner[order]
    (alike,) = np.nonzero((hashes[1:] == hashes[:-1]) & (owner[1:] != owner[:-1]))
    pairs, firsts, counts = np.unique(
        owner[alike] * len(found) + owner[alike + 1], return_index=True, return_counts=True
    )
    for pair, at, count in zip(pairs.tolist(), alike[firsts].tolist(), counts.tolist(), strict=True):
        first, second = found[pair // len(found)], found[pair % len(found)]
        wanted = evaluated is None or (second.source.name in evaluated and first.source.name not in evaluated)
        if wanted:
            places = [ids.described(int(np.searchsorted(ids.hashes, hashes[at]))) for ids in (first, second)]
            yield first, second, f"{count:,} ids: {' and '.join(places)}"


def _paths(context: Context, source: PreparedSource) -> list[str]:
    shards = context.shards[source.leaf.path]
    return [] if isinstance(shards, PlayheadError) else [path for shard in shards for _, path in shard.files]
