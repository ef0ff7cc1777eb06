"""Blends: at each position the dataset that lags furthest behind its share, ties to the first.

Laws: the indexes are those of megatron-core. Products are rounded before the subtraction, as on x86-64: a fused
multiply-add, which numba does not form by itself, would decide some ties otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from playhead.types import Array, IntArray, kernel

_CHUNK = 1 << 18

Shares = npt.NDArray[np.float64]


def weighted_rows(shares: Shares, size: int, drawn: IntArray) -> Iterator[tuple[Array, Array]]:
    """(dataset, sample in it) for each position, chunk by chunk; `drawn` counts the samples taken from each."""
    for start, datasets, samples in _chunks(size):
        fill_weighted(shares, start, drawn, datasets, samples)
        yield datasets, samples


def exhaustive_rows(sizes: IntArray, drawn: IntArray) -> Iterator[tuple[Array, Array]]:
    """The same until every dataset is spent; one that is spent takes no further part."""
    shares = sizes / float(sizes.sum())
    for start, datasets, samples in _chunks(int(sizes.sum())):
        fill_exhaustive(shares, sizes, start, drawn, datasets, samples)
        yield datasets, samples


def _chunks(size: int) -> Iterator[tuple[int, Array, Array]]:
    """Two pairs of arrays in turn: one may still be on its way to the disk while the other is filled."""
    most = min(_CHUNK, size)
    pairs = [(np.empty(most, np.int16), np.empty(most, np.int64)) for _ in range(2)]
    for number, start in enumerate(range(0, size, _CHUNK)):
        datasets, samples = pairs[number % 2]
        count = min(_CHUNK, size - start)
        yield start, datasets[:count], samples[:count]


@kernel
def fill_weighted(shares: Shares, start: int, drawn: IntArray, datasets: Array, samples: Array) -> None:
    counts = drawn.astype(np.float64)
    for k in range(len(datasets)):
        position = max(float(start + k), 1.0)
        best, most = 0, shares[0] * position - counts[0]
        for i in range(1, len(shares)):
            lag = shares[i] * position - counts[i]
            if lag > most:
                best, most = i, lag
        datasets[k] = best
        samples[k] = drawn[best]
        drawn[best] += 1
        counts[best] += 1.0


@kernel
def fill_exhaustive(
    shares: Shares, sizes: IntArray, start: int, drawn: IntArray, datasets: Array, samples: Array
) -> None:
    for k in range(len(datasets)):
        position = max(float(start + k), 1.0)
        best, most = -1, -np.inf
        for i in range(len(shares)):
            if drawn[i] < sizes[i]:
                lag = shares[i] * position - float(drawn[i])
                if lag > most:
                    best, most = i, lag
        datasets[k] = best
        samples[k] = drawn[best]
        drawn[best] += 1
