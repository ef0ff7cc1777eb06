"""The rows that a recipe's rules leave: worked out once by `prepare`, opened by mapping.

In `selection-<key>/`: meta.json (counts, digest of the selected lengths, each rule's loss), shards.npy (selected
rows of every shard), histogram.npy and outputs.npy, and, unless every row is kept, bitmap.npy (one bit a raw row)
with before.npy (selected rows before each 512).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from playhead.errors import DataError
from playhead.fingerprint import ArrayDigest, digest
from playhead.index.arrays import ArrayWriter, map_array, save_array
from playhead.index.bits import BLOCK, contains, count_blocks, pack_bits, rank, select, select_lengths
from playhead.index.histogram import NUM_BINS, Histogram, Tally
from playhead.index.integrity import damaged, damaged_arrays
from playhead.index.layout import VERSION, Layout, decode_file
from playhead.index.opened import Index
from playhead.index.rules import Test, selection_fingerprint, tests_of
from playhead.store import fresh_directory, replacing, swap_directory
from playhead.types import Array, BoolArray, IntArray, LengthArray, UIntArray

_STRETCH = BLOCK * 1024


class Loss(Struct, frozen=True):
    """What one rule took from the rows that the rules before it had left."""

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

    def selected_rows(self, raw: IntArray) -> IntArray:
        """The numbers of those raw rows that are selected."""
        if self.bitmap is None or self.before is None:
            return raw
        return rank(self.bitmap, self.before, raw[contains(self.bitmap, raw)])


def _path(layout: Layout, fingerprint: str) -> Path:
    return layout.directory / f"selection-{fingerprint[:16]}"


def open_selection(layout: Layout, num_raw_rows: int) -> Selection | None:
    """The selection as prepared; None where it is missing or of other rules. `num_raw_rows` are those of the index."""
    directory = _path(layout, selection_fingerprint(layout))
    meta = _read_meta(layout)
    if meta is None:
        return None
    found = Selection(
        directory,
        meta,
        num_raw_rows,
        map_array(directory / "shards.npy", np.int64),
        map_array(directory / "bitmap.npy", np.uint64) if meta.has_bitmap else None,
        map_array(directory / "before.npy", np.int64) if meta.has_bitmap else None,
        _open_histogram(directory / "histogram.npy", meta),
        _open_histogram(directory / "outputs.npy", meta),
    )
    _check_counts(found)
    return found


def selection_damage(layout: Layout, *, everything: bool) -> tuple[str, ...]:
    """The arrays of the selection as prepared that are not what was written, as paths in the index."""
    directory, meta = _path(layout, selection_fingerprint(layout)), _read_meta(layout)
    names = () if meta is None else damaged_arrays(directory, meta.digests, everything=everything)
    return tuple(f"{directory.name}/{name}" for name in names)


def _read_meta(layout: Layout) -> SelectionMeta | None:
    fingerprint = selection_fingerprint(layout)
    meta = decode_file(_path(layout, fingerprint) / "meta.json", SelectionMeta)
    return meta if meta is not None and (meta.version, meta.fingerprint) == (VERSION, fingerprint) else None


def _check_counts(selection: Selection) -> None:
    """Refuse arrays that cannot be those of the meta."""
    directory, rows, num_raw = selection.directory, selection.shard_rows, selection.num_raw_rows
    if (rows < 0).any() or (rows > num_raw).any() or int(rows.sum()) != selection.meta.num_rows:
        raise damaged(
            directory / "shards.npy", f"{int(rows.sum()):,} rows in all shards", f"{selection.meta.num_rows:,}"
        )
    sizes = {"bitmap": (selection.bitmap, -(-num_raw // 64)), "before": (selection.before, -(-num_raw // BLOCK))}
    for name, (array, size) in sizes.items():
        if array is not None and array.shape != (size,):
            raise damaged(directory / f"{name}.npy", f"{array.size:,} entries", f"{size:,}")


def write_selection(layout: Layout, index: Index) -> SelectionMeta:
    """Work out the selection of an index and put it in place, whole or not at all. It may be of no rows."""
    fingerprint = selection_fingerprint(layout)
    target = _path(layout, fingerprint)
    directory = fresh_directory(target.with_name(f"{target.name}.new"))
    tests, num_unknown = tests_of(layout, index)
    sweep = _Sweep(index, tests)
    bitmap_digests = {}
    if tests:
        bitmap_digests = _write_bitmap(directory, index, sweep)
    else:
        for low in range(0, index.meta.num_rows, _STRETCH):
            sweep.stretch(low)
    has_bitmap = sweep.num_rows < index.meta.num_rows
    for name in () if has_bitmap else ("bitmap.npy", "before.npy"):
        (directory / name).unlink(missing_ok=True)
    digests = _write_arrays(directory, index, sweep, has_bitmap)
    meta = SelectionMeta(
        version=VERSION,
        fingerprint=fingerprint,
        num_rows=sweep.num_rows,
        length_sum=sweep.lengths.tally.histogram().length_sum,
        lengths_digest=sweep.lengths_digest(),
        losses=sweep.losses(),
        num_unknown_ids=num_unknown,
        longest=sweep.lengths.longest,
        longest_output=sweep.outputs.longest,
        has_bitmap=has_bitmap,
        digests=digests | bitmap_digests if has_bitmap else digests,
    )
    with replacing(directory / "meta.json") as file:
        file.write(msgspec.json.format(msgspec.json.encode(meta), indent=1))
    swap_directory(directory, target)
    return meta


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


class _Extremes:
    """The histogram and the first longest of the selected lengths of one kind."""

    def __init__(self, lengths: Array | None) -> None:
        self.lengths = lengths
        self.tally = Tally()
        self.longest: tuple[int, int] | None = None

    def add(self, low: int, mask: BoolArray, num_before: int) -> Array | None:
        if self.lengths is None:
            return None
        chosen = np.asarray(self.lengths[low : low + mask.size])[mask]
        if chosen.size:
            self.tally.add(chosen)
            best = int(chosen.argmax())
            if self.longest is None or int(chosen[best]) > self.longest[1]:
                self.longest = (num_before + best, int(chosen[best]))
        return chosen


class _Sweep:
    """One pass over all raw rows, a stretch at a time."""

    def __init__(self, index: Index, tests: list[Test]) -> None:
        self._total = index.meta.num_rows
        self._tests = tests
        self._lost = [[0, 0] for _ in tests]
        self.lengths = _Extremes(index.lengths)
        self.outputs = _Extremes(index.outputs)
        self.digest = ArrayDigest()
        self.outputs_digest = ArrayDigest()
        self.num_rows = 0

    def stretch(self, low: int) -> BoolArray:
        """The selected among the raw rows from `low` on."""
        high = min(low + _STRETCH, self._total)
        mask = np.ones(high - low, dtype=np.bool_)
        for test, lost in zip(self._tests, self._lost, strict=True):
            kept = test.keeps(low, high)
            gone = mask & ~kept
            lost[0] += int(gone.sum())
            if self.lengths.lengths is not None:
                lost[1] += int(np.asarray(self.lengths.lengths[low:high])[gone].sum(dtype=np.uint64))
            mask &= kept
        chosen = self.lengths.add(low, mask, self.num_rows)
        outputs = self.outputs.add(low, mask, self.num_rows)
        for values, hashed in ((chosen, self.digest), (outputs, self.outputs_digest)):
            if values is not None:
                hashed.update(values)
        self.num_rows += int(mask.sum())
        return mask

    def lengths_digest(self) -> str:
        """Of everything about the selected rows that a plan depends on."""
        if self.lengths.lengths is None:
            return digest(self.num_rows)
        found = self.digest.hexdigest()
        return found if self.outputs.lengths is None else digest([found, self.outputs_digest.hexdigest()])

    def losses(self) -> tuple[Loss, ...]:
        return tuple(Loss(test.name, *lost) for test, lost in zip(self._tests, self._lost, strict=True))


def _write_bitmap(directory: Path, index: Index, sweep: _Sweep) -> dict[str, str]:
    """Write the bitmap while sweeping; returns the digests."""
    total = index.meta.num_rows
    bitmap = ArrayWriter(directory / "bitmap.npy", np.uint64, (-(-total // 64),))
    before = ArrayWriter(directory / "before.npy", np.int64, (-(-total // BLOCK),))
    try:
        for low in range(0, total, _STRETCH):
            count = sweep.num_rows
            words = pack_bits(sweep.stretch(low))
            blocks = count_blocks(words)
            bitmap.add(words)
            before.add(count + np.cumsum(blocks) - blocks)
        return {"bitmap": bitmap.close(), "before": before.close()}
    finally:
        bitmap.abandon()
        before.abandon()


def _write_arrays(directory: Path, index: Index, sweep: _Sweep, has_bitmap: bool) -> dict[str, str]:
    """Write what the sweep has counted; returns the digests."""
    shard_rows = np.diff(index.shard_starts)
    if has_bitmap:
        bitmap = map_array(directory / "bitmap.npy", np.uint64)
        before = map_array(directory / "before.npy", np.int64)
        shard_rows = np.diff(rank(bitmap, before, index.shard_starts))
    digests = {"shards": save_array(directory / "shards.npy", shard_rows)}
    for name, kind in (("histogram", sweep.lengths), ("outputs", sweep.outputs)):
        if kind.lengths is not None:
            histogram = kind.tally.histogram()
            digests[name] = save_array(directory / f"{name}.npy", np.stack([histogram.counts, histogram.sums]))
    return digests


def _open_histogram(path: Path, meta: SelectionMeta) -> Histogram | None:
    if path.stem not in meta.digests:
        return None
    found = map_array(path, np.uint64)
    if found.shape != (2, NUM_BINS) or int(found[0].sum()) != meta.num_rows:
        raise damaged(path, f"{int(found[0].sum()):,} rows", f"{meta.num_rows:,}")
    return Histogram(*found)
