"""The rows that a recipe's rules leave: computed once by `prepare`, opened by mapping.

In `selection-<key>/`: meta.json (counts, digest of the selected lengths, each rule's loss), shards.npy (selected
rows of every shard), histogram.npy and outputs.npy, and, unless every row is kept, bitmap.npy (one bit a raw row)
with before.npy (selected rows before each 512).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import Struct

from playhead.errors import DataError
from playhead.index.arrays import map_array
from playhead.index.bits import BLOCK, contains, rank, select, select_lengths
from playhead.index.histogram import NUM_BINS, Histogram
from playhead.index.integrity import damaged, damaged_arrays
from playhead.index.layout import VERSION, Layout, decode_file
from playhead.index.opened import Index
from playhead.index.rules import selection_fingerprint
from playhead.types import Array, IntArray, LengthArray, UIntArray


class Loss(Struct, frozen=True):
    """The rows that one rule dropped from those that earlier rules had left."""

    rule: str
    num_rows: int
    length: int


class SelectionMeta(Struct, frozen=True):
    version: int
    fingerprint: str
    num_rows: int
    length_sum: int
    lengths_digest: str
    losses: tuple[Loss, ...]
    num_unknown_ids: int
    longest: tuple[int, int] | None
    longest_output: tuple[int, int] | None
    has_bitmap: bool
    digests: dict[str, str]


@dataclass(frozen=True)
class Selection:
    """The selected rows of an index. Without a bitmap every raw row is selected, under its own number."""

    directory: Path
    meta: SelectionMeta
    num_raw_rows: int
    shard_rows: IntArray
    bitmap: UIntArray | None
    before: IntArray | None
    histogram: Histogram | None
    output_histogram: Histogram | None

    def raw_rows(self, rows: IntArray) -> IntArray:
        if self.bitmap is None or self.before is None:
            return rows
        with self._sound():
            raw = select(self.bitmap, self.before, rows)
        if (raw >= self.num_raw_rows).any():
            raise damaged(self.directory / "bitmap.npy", f"raw row {int(raw.max()):,} of {self.num_raw_rows:,}")
        return raw

    def look_up(self, lengths: Array, rows: IntArray) -> LengthArray:
        """The lengths of selected rows, of the lengths of all raw ones."""
        if self.bitmap is None or self.before is None:
            return lengths.take(rows)
        with self._sound():
            return select_lengths(self.bitmap, self.before, rows, lengths)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise damaged(self.directory / "before.npy", str(error)) from error

    def num_before(self, raw: IntArray) -> IntArray:
        """The number of selected rows before each raw row, or before the end of all."""
        return raw if self.bitmap is None or self.before is None else rank(self.bitmap, self.before, raw)

    def selected_rows(self, raw: IntArray) -> IntArray:
        """The numbers of those raw rows that are selected."""
        if self.bitmap is None or self.before is None:
            return raw
        return rank(self.bitmap, self.before, raw[contains(self.bitmap, raw)])


def selection_path(layout: Layout, fingerprint: str) -> Path:
    return layout.directory / f"selection-{fingerprint[:16]}"


def open_selection(layout: Layout, num_raw_rows: int) -> Selection | None:
    """The prepared selection; None if it is missing or of other rules. `num_raw_rows` is the number in the index."""
    directory, meta = _read_meta(layout)
    if meta is None:
        return None
    found = Selection(
        directory,
        meta,
        num_raw_rows,
        map_array(f"{directory}/shards.npy", np.int64),
        map_array(f"{directory}/bitmap.npy", np.uint64) if meta.has_bitmap else None,
        map_array(f"{directory}/before.npy", np.int64) if meta.has_bitmap else None,
        _open_histogram(directory, "histogram", meta),
        _open_histogram(directory, "outputs", meta),
    )
    _check_counts(found)
    return found


def selection_damage(layout: Layout, *, everything: bool) -> tuple[str, ...]:
    """The arrays of the prepared selection that changed after they were written, as paths in the index."""
    directory, meta = _read_meta(layout)
    names = () if meta is None else damaged_arrays(directory, meta.digests, everything=everything)
    return tuple(f"{directory.name}/{name}" for name in names)


def _read_meta(layout: Layout) -> tuple[Path, SelectionMeta | None]:
    """The directory of the selection, and its meta if it exists."""
    fingerprint = selection_fingerprint(layout)
    directory = selection_path(layout, fingerprint)
    meta = decode_file(f"{directory}/meta.json", SelectionMeta)
    matches = meta is not None and (meta.version, meta.fingerprint) == (VERSION, fingerprint)
    return directory, meta if matches else None


def _check_counts(selection: Selection) -> None:
    """Refuse arrays that do not match the meta."""
    directory, rows, num_raw = selection.directory, selection.shard_rows, selection.num_raw_rows
    if (rows < 0).any() or (rows > num_raw).any() or int(rows.sum()) != selection.meta.num_rows:
        raise damaged(
            directory / "shards.npy", f"{int(rows.sum()):,} rows in all shards", f"{selection.meta.num_rows:,}"
        )
    sizes = {"bitmap": (selection.bitmap, -(-num_raw // 64)), "before": (selection.before, -(-num_raw // BLOCK))}
    for name, (array, size) in sizes.items():
        if array is not None and array.shape != (size,):
            raise damaged(directory / f"{name}.npy", f"{array.size:,} entries", f"{size:,}")


def nothing_left(layout: Layout, index: Index, losses: tuple[Loss, ...]) -> DataError:
    name, path = layout.leaf.source.name, layout.leaf.path
    worst = max(losses, key=lambda loss: loss.num_rows, default=None)
    columns = {column: np.asarray(index.column(column)) for column in index.meta.spec.columns}
    nowhere = [column for column, values in columns.items() if values.dtype.kind == "f" and np.isnan(values).all()]
    if worst is not None and nowhere:
        return DataError(
            f'{path} "{name}": no row is left: none has a number in "{nowhere[0]}"',
            found=f'{index.meta.num_rows:,} rows, of which "{worst.rule}" drops {worst.num_rows:,}',
            expected="the name of a field of the rows",
            fix="correct the name in `keep`, or drop the rule",
        )
    return DataError(
        f'{path} "{name}": no row is left',
        found="no rows in its files"
        if worst is None
        else f'{index.meta.num_rows:,} rows, of which "{worst.rule}" drops {worst.num_rows:,}',
        expected="at least one row",
        fix="widen that rule, or drop the source",
    )


def _open_histogram(directory: Path, name: str, meta: SelectionMeta) -> Histogram | None:
    if name not in meta.digests:
        return None
    path = f"{directory}/{name}.npy"
    found = map_array(path, np.uint64)
    if found.shape != (2, NUM_BINS) or int(found[0].sum()) != meta.num_rows:
        raise damaged(path, f"{int(found[0].sum()):,} rows", f"{meta.num_rows:,}")
    return Histogram(*found)
