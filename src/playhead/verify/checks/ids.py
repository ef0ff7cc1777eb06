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
from playhead.index.bits import contains
from playhead.types import IntArray, UIntArray
from playhead.verify.checks.context import Context, PreparedSource
from playhead.verify.checks.finding import Problem
from playhead.verify.checks.registry import check
from playhead.verify.checks.wording import id_field, listed

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
            fix=f"add `ids: {id_field(without[0])}` (the field that holds the id), and run `playhead prepare`",
            severity="note",
        )


@check("PH028", "warning", "two sources share rows: the same files, or the same ids", "recipe", "tables")
def shared_rows(context: Context) -> Iterator[Problem]:
    reported = set()
    for first, second, path in _sharing_files(context, context.trained, context.trained):
        reported.add((first.name, second.name))
        yield _twice(second, f'"{second.name}" and "{first.name}" share rows of a file', path)
    for ids, others, found in _overlaps(_ids(context.trained), None):
        if (ids.source.name, others.source.name) not in reported:
            yield _twice(others.source, f'"{others.source.name}" and "{ids.source.name}" share ids', found)


def _twice(source: PreparedSource, problem: str, found: str) -> Problem:
    expected = "every sample in one source: its share is the sum of both"
    return Problem(source.leaf.path, problem, found, expected, "remove it from one of the two")


@check("PH029", "error", "rows of an evaluation set are also trained on", "recipe", "tables")
def trained_evaluation(context: Context) -> Iterator[Problem]:
    evaluated = [source for source in context.prepared if source.leaf.evaluation is not None]
    reported = set()
    for trained, source, path in _sharing_files(context, context.trained, evaluated):
        reported.add(source.leaf.path)
        yield _leak(source, trained, path)
    others = [source for source in evaluated if source.leaf.path not in reported]
    places = {source.leaf.path for source in others}
    for first, second, found in _overlaps(_ids([*context.trained, *others]), places):
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
    """Pairs of sources that share ids: any two, or one that is trained on and one at the places `evaluated`."""
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
        if evaluated is None or (second.source.leaf.path in evaluated and first.source.leaf.path not in evaluated):
            places = [ids.described(int(np.searchsorted(ids.hashes, hashes[at]))) for ids in (first, second)]
            yield first, second, f"{count:,} ids: {' and '.join(places)}"


def _sharing_files(
    context: Context, firsts: Sequence[PreparedSource], seconds: Sequence[PreparedSource]
) -> Iterator[tuple[PreparedSource, PreparedSource, str]]:
    """Pairs of sources, the first before the second in the recipe, that keep the same rows of a file, and that file."""
    owners: dict[str, list[PreparedSource]] = {}
    for source in firsts:
        for path in _paths(context, source):
            owners.setdefault(path, []).append(source)
    seen = set()
    for second in seconds:
        for path in _paths(context, second):
            for first in owners.get(path, ()):
                pair = first.leaf.path, second.leaf.path
                if pair in seen or (second in firsts and firsts.index(first) >= firsts.index(second)):
                    continue
                seen.add(pair)
                if _keep_the_same(first, second):
                    yield first, second, path


def _keep_the_same(first: PreparedSource, second: PreparedSource) -> bool:
    """Whether two sources over the same files keep a row of both; of other files, whether their rules are the same.

    One file may well be two sources, each with other rows of it.
    """
    indexes = [source.table.index.meta.shards for source in (first, second)]
    if [shard.files for shard in indexes[0]] != [shard.files for shard in indexes[1]]:
        rules = [(source.leaf.source.keep, source.leaf.source.drop_rows) for source in (first, second)]
        return rules[0] == rules[1]
    bitmaps = [source.table.selection.bitmap for source in (first, second)]
    kept = [bitmap for bitmap in bitmaps if bitmap is not None]
    return len(kept) < 2 or bool((kept[0] & kept[1]).any())


def _paths(context: Context, source: PreparedSource) -> list[str]:
    shards = context.shards[source.leaf.path]
    return [] if isinstance(shards, PlayheadError) else [path for shard in shards for _, path in shard.files]
