"""A histogram of lengths in whole numbers only: exact below 128, then 64 bins to every doubling.

So a bin is never wider than 1/64 of its lengths, and the same lengths give the same bins on every platform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playhead.types import IntArray, LengthArray, UIntArray, kernel

_EXACT = 128
_PER_OCTAVE = 64
NUM_BINS = _EXACT + 25 * _PER_OCTAVE  # lengths below 2**32


@dataclass(frozen=True)
class Histogram:
    """How many samples, and how much length, each bin holds."""

    counts: UIntArray
    sums: UIntArray

    @property
    def num_rows(self) -> int:
        return int(self.counts.sum())

    @property
    def length_sum(self) -> int:
        return int(self.sums.sum())


def bounds(number: int) -> tuple[int, int]:
    """The lengths of a bin: from the first up to, not including, the second."""
    if number < _EXACT:
        return number, number + 1
    octave, step = divmod(number - _EXACT, _PER_OCTAVE)
    shift = octave + 1
    return (step + _PER_OCTAVE) << shift, (step + _PER_OCTAVE + 1) << shift


def lower_bounds() -> IntArray:
    """The first length of every bin."""
    return np.array([bounds(number)[0] for number in range(NUM_BINS)], dtype=np.int64)


class Tally:
    """Builds a histogram. Law: it does not depend on the pieces in which lengths arrive."""

    def __init__(self) -> None:
        self._counts = np.zeros(NUM_BINS, dtype=np.uint64)
        self._sums = np.zeros(NUM_BINS, dtype=np.uint64)

    def add(self, lengths: LengthArray) -> None:
        _tally(lengths, self._counts, self._sums)

    def histogram(self) -> Histogram:
        return Histogram(self._counts.copy(), self._sums.copy())


@kernel
def _tally(lengths: LengthArray, counts: UIntArray, sums: UIntArray) -> None:
    for i in range(lengths.size):
        length = np.int64(lengths[i])
        number = length
        if length >= 128:
            shift = 1
            while length >> shift >= 128:
                shift += 1
            number = 128 + (shift - 1) * 64 + (length >> shift) - 64
        counts[number] += np.uint64(1)
        sums[number] += np.uint64(length)
