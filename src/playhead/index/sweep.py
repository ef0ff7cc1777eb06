"""Computing a selection: one pass over all raw rows of an index, rule by rule, written incrementally."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from playhead.fingerprint import ArrayDigest, digest
from playhead.index.arrays import ArrayWriter, map_array, save_array
from playhead.index.bits import BLOCK, count_blocks, pack_bits, rank
from playhead.index.histogram import Tally
from playhead.index.layout import VERSION, Layout
from playhead.index.opened import Index
from playhead.index.rules import Test, selection_fingerprint, tests_of
from playhead.index.selection import Loss, SelectionMeta, selection_path
from playhead.store import fresh_directory, replacing, swap_directory
from playhead.types import Array, BoolArray

_STRETCH = BLOCK * 1024


def write_selection(layout: Layout, index: Index) -> SelectionMeta:
    """Compute the selection of an index and write it atomically. It may have no rows."""
    fingerprint = selection_fingerprint(layout)
    target = selection_path(layout, fingerprint)
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
        """A digest of everything about the selected rows that a plan depends on."""
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
    """Write the counts of the sweep; returns the digests."""
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
