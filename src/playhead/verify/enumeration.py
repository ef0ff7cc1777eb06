"""The rows of a recipe's sources, found by the formats' own scans: a second opinion on the index.

Nothing here is from the index, the order or the plan, except what a scan cannot know: lengths that are measured or in
headers, and, where only some shards are scanned, how many rows the others have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from playhead.errors import DataError
from playhead.formats.contract import ScanLimits
from playhead.formats.rows import Shard
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, column, schema_of, tracks_in
from playhead.formats.spec import Range, Spec
from playhead.index.layout import Layout, layout_of
from playhead.index.rules import held_by
from playhead.index.table import Table
from playhead.recipe.storage import files_of
from playhead.recipe.tree import Leaf
from playhead.recipe.units import UNKNOWN_LENGTH
from playhead.recipe.values import Recipe, Unit
from playhead.seeds import hash_text
from playhead.store import Files
from playhead.types import Array, BoolArray

Arrays = dict[str, Array]


@dataclass(frozen=True)
class ScannedShard:
    """The selected rows of a shard: the number of the first among all of the source, how many, and their ids hashed."""

    name: str
    first_row: int
    num_rows: int
    ids: Array | None


@dataclass(frozen=True)
class EnumeratedSource:
    """The rows of a source. `stale` says how the index differs from what was found, if it does."""

    name: str
    num_rows: int
    num_shards: int
    shards: tuple[ScannedShard, ...]
    stale: str | None = None

    @property
    def is_whole(self) -> bool:
        return len(self.shards) == self.num_shards


def enumerate_source(
    leaf: Leaf, recipe: Recipe, table: Table, id_field: str, most_rows: int | None
) -> EnumeratedSource:
    """Scan a source again, or shards drawn by chance until they have `most_rows`, and compare it with its index."""
    files = files_of(recipe, "build")
    layout = layout_of(leaf, recipe)
    found = list(layout.registered.format.discover(leaf.source, files))
    indexed = [entry.name for entry in table.index.meta.shards]
    if [shard.name for shard in found] != indexed:
        return _with_other_shards(leaf.source.name, found, indexed)
    scanner = _Scanner(leaf, recipe, layout, table, files, id_field)
    first_rows = np.concatenate(([0], np.cumsum(table.shard_rows)))
    shards: dict[int, ScannedShard] = {}
    num_rows = 0
    for i in _chosen(len(found), most_rows):
        stale, num_selected, ids = scanner.scan(found[i], i)
        expected = int(table.shard_rows[i])
        if stale is None and num_selected != expected:
            stale = f"{found[i].name}: {num_selected:,} rows are selected now, {expected:,} in the index"
        shards[i] = ScannedShard(found[i].name, int(first_rows[i]), num_selected, ids)
        num_rows += num_selected
        if stale is not None:
            return EnumeratedSource(leaf.source.name, table.num_rows, len(found), tuple(shards.values()), stale)
        if most_rows is not None and num_rows >= most_rows:
            break
    ordered = tuple(shards[i] for i in sorted(shards))
    total = num_rows if len(shards) == len(found) else table.num_rows
    return EnumeratedSource(leaf.source.name, total, len(found), ordered)


def _chosen(num_shards: int, most_rows: int | None) -> list[int]:
    order = list(range(num_shards))
    if most_rows is not None:
        random.Random(0).shuffle(order)  # noqa: S311  # any order will do, the same each time
    return order


def _with_other_shards(name: str, found: list[Shard], indexed: list[str]) -> EnumeratedSource:
    now = [shard.name for shard in found]
    fresh, gone = [path for path in now if path not in indexed], [path for path in indexed if path not in now]
    if fresh:
        text = f"{len(fresh):,} shards are not in the index, the first {fresh[0]}"
    elif gone:
        text = f"{len(gone):,} shards of the index are gone, the first {gone[0]}"
    else:
        text = "its shards are in another order than in the index"
    return EnumeratedSource(name, -1, len(now), (), text)


class _Scanner:
    """Scans shards of a source one by one."""

    def __init__(self, leaf: Leaf, recipe: Recipe, layout: Layout, table: Table, files: Files, id_field: str) -> None:
        self._leaf, self._layout, self._table, self._files = leaf, layout, table, files
        self._limits = ScanLimits(indexes_root=recipe.indexes_root)
        self._dropped_ids = {hash_text(line) for path in leaf.source.drop_ids for line in _lines(path)}
        self._dropped_rows = {int(line) for path in leaf.source.drop_rows for line in _lines(path)}
        self._specs = self._with_ids(layout.spec.scanned, id_field)

    def _with_ids(self, spec: Spec, id_field: str) -> list[Spec]:
        """What to ask a scan for: the ids too, by the first field that has them; without, where no field does."""
        if spec.ids is not None:
            return [spec]
        names = dict.fromkeys(filter(None, (id_field, self._layout.registered.default_id)))
        return [*(replace(spec, ids=name) for name in names), spec]

    def scan(self, shard: Shard, number: int) -> tuple[str | None, int, Array | None]:
        """What differs from the index, the number of selected rows, and their ids."""
        arrays, num_rows = self._arrays(shard)
        first = int(self._table.index.shard_starts[number])
        in_index = int(self._table.index.shard_starts[number + 1]) - first
        if num_rows != in_index:
            return f"{shard.name}: {num_rows:,} rows now, {in_index:,} in the index", num_rows, None
        stale = self._compared(shard, number, arrays, first, num_rows)
        kept = self._kept(arrays, first, num_rows)
        ids = arrays.get(IDS)
        return stale, int(kept.sum()), None if ids is None else ids[kept]

    def _arrays(self, shard: Shard) -> tuple[Arrays, int]:
        for spec in self._specs[:-1]:
            try:
                found = self._scanned(shard, spec)
            except DataError:
                continue
            self._specs = [spec, *self._specs[self._specs.index(spec) + 1 :]]
            return found
        return self._scanned(shard, self._specs[-1])

    def _scanned(self, shard: Shard, spec: Spec) -> tuple[Arrays, int]:
        chunks = list(self._layout.registered.format.scan(shard, spec, self._files, self._limits))
        names = chunks[0].arrays if chunks else {}
        arrays = {name: np.concatenate([chunk.arrays[name] for chunk in chunks]) for name in names}
        return arrays, sum(chunk.num_rows for chunk in chunks)

    def _compared(self, shard: Shard, number: int, arrays: Arrays, first: int, num_rows: int) -> str | None:
        """The first row whose place or length is another than in the index; the bounds of blocks are not compared."""
        index = self._table.index
        tracks = tracks_in(arrays, (role for role, _ in shard.files))
        for name, about in schema_of(self._layout.spec.scanned, tracks).items():
            if name not in index.arrays or about.per == "block":
                continue
            at = first + number if about.per == "bound" else first
            ours, theirs = arrays[name], np.asarray(index.arrays[name][at : at + len(arrays[name])])
            if len(ours) != len(theirs):
                return f"{shard.name}: {name} has other entries than in the index"
            differ = ours != theirs
            if ours.dtype.kind == "f":
                differ &= ~(np.isnan(ours) & np.isnan(theirs))
            if name == LENGTHS:
                differ &= ours != UNKNOWN_LENGTH
            if differ.any():
                row = int(np.flatnonzero(differ)[0])
                return f"{shard.name}, row {row:,} of {num_rows:,}: {name} {ours[row]} now, {theirs[row]} in the index"
        return None

    def _kept(self, arrays: Arrays, first: int, num_rows: int) -> BoolArray:
        """Which rows the recipe's rules keep, rule by rule."""
        leaf = self._leaf
        kept = np.ones(num_rows, np.bool_)
        lengths, outputs = self._lengths(arrays, first, num_rows)
        planned = {"@length": _as_written(lengths, leaf.unit), "@output_length": _as_written(outputs, leaf.output_unit)}
        for rule in self._layout.rules:
            if isinstance(rule.test, Range):
                kept &= _in_range(
                    rule.test,
                    [planned[name] if name in planned else arrays[column(name)] for name in rule.test.columns],
                )
            else:
                kept &= arrays[column(rule.test.column)] != 0
        if self._dropped_ids:
            kept &= ~np.isin(arrays[IDS], np.array(sorted(self._dropped_ids), np.uint64))
        if self._dropped_rows:
            kept &= ~np.isin(np.arange(first, first + num_rows), sorted(self._dropped_rows))
        if leaf.dropped_above is not None and lengths is not None:
            kept &= lengths <= leaf.dropped_above
        if leaf.output_dropped_above is not None and outputs is not None:
            kept &= outputs <= leaf.output_dropped_above
        if leaf.batching.overlong == "drop" and leaf.frontier and lengths is not None and outputs is not None:
            kept &= held_by(leaf.frontier, lengths, outputs)
        return kept

    def _lengths(self, arrays: Arrays, first: int, num_rows: int) -> tuple[Array | None, Array | None]:
        """The lengths of rows; those that a scan does not know are the index's."""
        lengths, known = arrays.get(LENGTHS), self._table.index.lengths
        if known is not None:
            known = np.asarray(known[first : first + num_rows])
            lengths = known if lengths is None else np.where(lengths == UNKNOWN_LENGTH, known, lengths)
        return lengths, arrays.get(OUTPUTS)


def _as_written(lengths: Array | None, unit: Unit) -> Array:
    """Planned lengths in the unit of the recipe; there are none where no rule asks for them."""
    if lengths is None:
        return np.empty(0)
    return lengths / (1000.0 if unit == "seconds" else 1.0)


def _in_range(rule: Range, columns: list[Array]) -> BoolArray:
    """As `keep` says: within both ends, in the precision that columns are kept in; a missing number is in no range."""
    values: Any = columns[0]
    if len(columns) == 2:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            values = (columns[0].astype(np.float64) / columns[1].astype(np.float64)).astype(np.float32)
    low = -np.inf if rule.low is None else values.dtype.type(rule.low)
    high = np.inf if rule.high is None else values.dtype.type(rule.high)
    found: BoolArray = (values >= low) & (values <= high)
    return found


def _lines(path: str) -> Iterator[str]:
    for line in Path(path).read_text(encoding="utf-8-sig", errors="replace").split("\n"):
        if line.strip() and not line.strip().startswith("#"):
            yield line.strip()


def id_of(source: EnumeratedSource) -> Callable[[int], int | None]:
    """The hashed id of a row of a source, where it was scanned and has one."""
    firsts = [shard.first_row for shard in source.shards]

    def find(row: int) -> int | None:
        at = int(np.searchsorted(firsts, row, side="right")) - 1
        if at < 0:
            return None
        shard = source.shards[at]
        inside = row - shard.first_row
        return None if shard.ids is None or inside >= shard.num_rows else int(shard.ids[inside])

    return find
