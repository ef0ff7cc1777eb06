"""The rules of a selection, in order, as tests on stretches of raw rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from playhead.errors import DataError
from playhead.fingerprint import digest, digest_bytes
from playhead.formats.spec import Range
from playhead.index.keys import find_hashes
from playhead.index.layout import VERSION, Layout
from playhead.index.opened import Index
from playhead.recipe.tree import Leaf
from playhead.recipe.units import readable
from playhead.recipe.values import PLANNED_COLUMNS
from playhead.seeds import hash_text
from playhead.store import Files, all_files, open_file
from playhead.types import Array, BoolArray, IntArray

Keeps = Callable[[int, int], BoolArray]
Numbers = Callable[[int, int], Array]


@dataclass(frozen=True)
class Test:
    """A rule by the name it has in reports, and the rows of [low, high) that it keeps."""

    __test__ = False  # not a pytest class

    name: str
    keeps: Keeps


@dataclass(frozen=True)
class Dropped:
    """The raw rows that a list of ids or rows leaves out, and how many of its ids no row has."""

    rows: IntArray
    num_unknown: int


def selection_fingerprint(layout: Layout) -> str:
    """Everything that determines a selection of a given index. Files of ids and rows count by their contents."""
    source = layout.leaf.source
    return digest(
        [
            VERSION,
            layout.rules,
            [layout.leaf.dropped_above, layout.leaf.output_dropped_above],
            _dropped_beyond(layout.leaf),
            [digest_bytes(_contents(layout.files, path)) for path in source.drop_ids],
            [digest_bytes(_contents(layout.files, path)) for path in source.drop_rows],
        ]
    )


def tests_of(layout: Layout, index: Index) -> tuple[list[Test], int]:
    """Every rule in the order in which losses are charged, and the number of unknown ids."""
    source, unit = layout.leaf.source, layout.leaf.unit
    tests = []
    for rule in layout.rules:
        if isinstance(rule.test, Range):
            keeps = _in_range(rule.test, [_numbers(layout.leaf, index, name) for name in rule.test.columns])
        else:
            keeps = _matching(index.column(rule.test.column))
        tests.append(Test(f"keep {rule.key}: {rule.text}", keeps))
    num_unknown = 0
    if source.drop_ids:
        dropped = _rows_of_ids(layout, index)
        num_unknown = dropped.num_unknown
        tests.append(Test("drop_ids", _outside(dropped.rows)))
    if source.drop_rows:
        tests.append(Test("drop_rows", _outside(_listed_rows(layout, index.meta.num_rows))))
    if (limit := layout.leaf.dropped_above) is not None and index.lengths is not None:
        tests.append(Test(f"overlong: above {readable(limit, unit)}", _at_most(index.lengths, limit)))
    if (limit := layout.leaf.output_dropped_above) is not None and index.outputs is not None:
        tests.append(Test(f"overlong output: above {limit:,}", _at_most(index.outputs, limit)))
    frontier = _dropped_beyond(layout.leaf)
    if frontier is not None and index.lengths is not None and index.outputs is not None:
        tests.append(Test("overlong: in no bucket", _held(index.lengths, index.outputs, frontier)))
    return tests, num_unknown


def _dropped_beyond(leaf: Leaf) -> tuple[tuple[int, int], ...] | None:
    return leaf.frontier if leaf.batching.overlong == "drop" else None


def _numbers(leaf: Leaf, index: Index, name: str) -> Numbers:
    """The numbers of a column for some rows; those of planned lengths are in the units of the recipe."""
    if name not in PLANNED_COLUMNS:
        column = index.column(name)
        return lambda low, high: np.asarray(column[low:high])
    lengths, unit = (index.lengths, leaf.unit) if name == "@length" else (index.outputs, leaf.output_unit)
    assert lengths is not None
    scale = 1000.0 if unit == "seconds" else 1.0
    return lambda low, high: np.asarray(lengths[low:high]) / scale


def _in_range(rule: Range, columns: list[Numbers]) -> Keeps:
    """Limits are compared in the precision of the values, which is float32 for columns: 0.1 is within [0, 0.1]."""

    def keeps(low: int, high: int) -> BoolArray:
        values = columns[0](low, high)
        if len(columns) == 2:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ratio = values.astype(np.float64) / columns[1](low, high).astype(np.float64)
                values = ratio.astype(np.float32)
        # NaN, a missing value, is within no limits; a rule has one at least.
        kept = np.ones(values.size, dtype=np.bool_)
        if rule.low is not None:
            kept &= values >= values.dtype.type(rule.low)
        if rule.high is not None:
            kept &= values <= values.dtype.type(rule.high)
        return kept

    return keeps


def _matching(column: Array) -> Keeps:
    return lambda low, high: np.asarray(column[low:high]) != 0


def _at_most(lengths: Array, limit: int) -> Keeps:
    return lambda low, high: np.asarray(lengths[low:high]) <= limit


def _held(lengths: Array, outputs: Array, frontier: tuple[tuple[int, int], ...]) -> Keeps:
    return lambda low, high: held_by(frontier, lengths[low:high], outputs[low:high])


def held_by(frontier: tuple[tuple[int, int], ...], lengths: Array, outputs: Array) -> BoolArray:
    """Which samples a bucket of two lengths holds."""
    edges, most = np.array(frontier).T
    places = np.searchsorted(edges, lengths)
    return (places < len(edges)) & (outputs <= most[np.minimum(places, len(edges) - 1)])


def _outside(rows: IntArray) -> Keeps:
    def keeps(low: int, high: int) -> BoolArray:
        kept = np.ones(high - low, dtype=np.bool_)
        first, last = np.searchsorted(rows, [low, high])
        kept[rows[first:last] - low] = False
        return kept

    return keeps


def _rows_of_ids(layout: Layout, index: Index) -> Dropped:
    assert index.keys is not None
    ids = {line for path in layout.leaf.source.drop_ids for _, line in _lines(layout.files, path)}
    hashes = np.sort(np.fromiter(map(hash_text, ids), dtype=np.uint64, count=len(ids)))
    first, last = find_hashes(index.keys, hashes)
    pieces = [index.keys[low:high, 1] for low, high in zip(first.tolist(), last.tolist(), strict=True) if low < high]
    rows = np.sort(np.concatenate(pieces).astype(np.int64)) if pieces else np.empty(0, dtype=np.int64)
    return Dropped(rows, int((first == last).sum()))


def _listed_rows(layout: Layout, num_rows: int) -> IntArray:
    rows = set()
    for path in layout.leaf.source.drop_rows:
        for number, text in _lines(layout.files, path):
            if not text.isdecimal() or int(text) >= num_rows:
                raise DataError(
                    f"{path}, line {number:,}: not a row of this source",
                    found=text[:80],
                    expected=f"a whole number from 0 to {num_rows - 1:,}",
                )
            rows.add(int(text))
    return np.array(sorted(rows), dtype=np.int64)


def _lines(files: Files | None, path: str) -> list[tuple[int, str]]:
    """The lines of a list with their numbers, blank lines and comments left out."""
    text = _contents(files, path).decode("utf-8-sig", "replace")
    numbered = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    return [(number, line) for number, line in numbered if line and not line.startswith("#")]


def _contents(files: Files | None, path: str) -> bytes:
    return b"".join(open_file(files or all_files(), path).pieces())
