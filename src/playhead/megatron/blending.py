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
    """(dataset, sample in it) for each position, chunk by chunk; `drawn` counts the samples taken from each.

    A chunk is overwritten by the next.
    """
    return _rows(shares, np.full(len(shares), np.iinfo(np.int64).max), size, drawn)


def exhaustive_rows(sizes: IntArray, drawn: IntArray) -> Iterator[tuple[Array, Array]]:
    """The same until every dataset is exhausted; an exhausted one is no longer drawn."""
    return _rows(sizes / float(sizes.sum()), sizes, int(sizes.sum()), drawn)


def _rows(shares: Shares, limits: IntArray, size: int, drawn: IntArray) -> Iterator[tuple[Array, Array]]:
    most = min(_CHUNK, size)
    datasets, samples = np.empty(most, np.int16), np.empty(most, np.int64)
    for start in range(0, size, _CHUNK):
        count = min(_CHUNK, size - start)
        fill_rows(shares, limits, start, drawn, datasets[:count], samples[:count])
        yield datasets[:count], samples[:count]


@kernel
def fill_rows(shares: Shares, limits: IntArray, start: int, drawn: IntArray, datasets: Array, samples: Array) -> None:
    """An exhausted dataset has an infinitely small lag."""
    counts = np.where(drawn < limits, drawn.astype(np.float64), np.inf)
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
        counts[best] = float(drawn[best]) if drawn[best] < limits[best] else np.inf
