"""Ids looked up by hash: pairs of (hash, raw row), sorted, however many there are.

Sorting goes by ranges of hashes through files, so its memory is bounded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from playhead.index.arrays import ArrayWriter
from playhead.store import writing_to
from playhead.types import IntArray, UIntArray, kernel

_PAIR_BYTES = 16
_COPIES = 6  # of a range while it is sorted


class KeySorter:
    """Takes pairs in any order; writes them sorted by hash, then by row."""

    def __init__(self, directory: Path, num_rows: int, memory_bytes: int) -> None:
        self._num_rows = num_rows
        ranges = max(1, -(-num_rows * _PAIR_BYTES * _COPIES // memory_bytes))
        self._shift = 64 - (ranges - 1).bit_length()
        self._paths = [directory / f"keys-{i}.tmp" for i in range(1 << (64 - self._shift))]

    def add(self, hashes: UIntArray, rows: IntArray) -> None:
        pairs = np.stack([hashes, rows.astype(np.uint64)], axis=1)
        if len(self._paths) == 1:
            return self._append(0, pairs)
        ranges = hashes >> np.uint64(self._shift)
        order = np.argsort(ranges, kind="stable")
        bounds = np.searchsorted(ranges[order], np.arange(len(self._paths) + 1, dtype=np.uint64))
        for i in range(len(self._paths)):
            if bounds[i] < bounds[i + 1]:
                self._append(i, pairs[order[bounds[i] : bounds[i + 1]]])
        return None

    def write(self, path: Path) -> str:
        """Write the sorted pairs and remove the ranges; returns the digest."""
        writer = ArrayWriter(path, np.uint64, (self._num_rows, 2))
        try:
            for part in self._paths:
                if part.exists():
                    pairs = np.fromfile(part, dtype="<u8").reshape(-1, 2)
                    writer.add(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])
                    part.unlink()
            return writer.close()
        finally:
            writer.abandon()

    def _append(self, number: int, pairs: UIntArray) -> None:
        with writing_to(self._paths[number]), self._paths[number].open("ab") as file:
            file.write(pairs.astype("<u8", copy=False).tobytes())


@kernel
def find_hashes(keys: UIntArray, hashes: UIntArray) -> tuple[IntArray, IntArray]:
    """For each hash, the first and the past-the-end position among sorted keys."""
    first = np.empty(hashes.size, dtype=np.int64)
    last = np.empty(hashes.size, dtype=np.int64)
    for i in range(hashes.size):
        low, high = 0, keys.shape[0]
        while low < high:
            middle = (low + high) // 2
            if keys[middle, 0] < hashes[i]:
                low = middle + 1
            else:
                high = middle
        first[i] = low
        while low < keys.shape[0] and keys[low, 0] == hashes[i]:
            low += 1
        last[i] = low
    return first, last
