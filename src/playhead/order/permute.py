"""A keyed bijection on [0, n): O(1) memory, vectorised, invertible.

From 2^16 items on: an alternating Feistel network on the bits of n, repeated until it lands below n. Below, where
so few bits mix badly: positions sorted by keyed hash.
"""

from __future__ import annotations

import numpy as np

from playhead.order.hashing import mix_each
from playhead.types import IntArray, UIntArray, kernel

SMALL = 1 << 16
_ROUNDS = 8
_STRIDE = np.uint64(0xA076_1D64_78BD_642F)
_MULTIPLIER = np.uint64(0xE703_7ED1_A0B4_28DB)
_INDEX_MASK = np.uint64(SMALL - 1)


def permute(key: int, indices: IntArray, n: int) -> IntArray:
    """Where each index goes. Law: over all of [0, n) every value of [0, n) comes out once."""
    if n < SMALL:
        found: IntArray = small_tables(np.array([key], np.uint64), n)[0, indices]
        return found
    return _through_network(key, indices, n, 1)


def unpermute(key: int, values: IntArray, n: int) -> IntArray:
    """Law: unpermute(key, permute(key, i, n), n) == i."""
    if n < SMALL:
        found: IntArray = np.argsort(small_tables(np.array([key], np.uint64), n)[0])[values]
        return found
    return _through_network(key, values, n, -1)


def small_tables(keys: UIntArray, n: int) -> IntArray:
    """The whole permutation of a small n, for each key: an index is in the low bits of its hash, so there are no ties.

    An array of (keys, n).
    """
    packed = mix_each(keys[:, None] + np.arange(1, n + 1, dtype=np.uint64) * _STRIDE)
    packed &= ~_INDEX_MASK
    packed |= np.arange(n, dtype=np.uint64)
    packed.sort(axis=1)
    packed &= _INDEX_MASK
    return packed.view(np.int64)


def permute_in_place(key: int, values: IntArray, n: int) -> None:
    """As `permute`, for n that is not small."""
    _apply_network(_round_keys(key), n, (n - 1).bit_length(), 1, values)


def _through_network(key: int, values: IntArray, n: int, direction: int) -> IntArray:
    out = np.array(values, np.int64)
    _apply_network(_round_keys(key), n, (n - 1).bit_length(), direction, out)
    return out


def _round_keys(key: int) -> UIntArray:
    return mix_each(np.uint64(key) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _STRIDE)


@kernel
def _apply_network(keys: UIntArray, n: int, bits: int, direction: int, values: IntArray) -> None:
    """Apply the network to each value until it is below n: at most a few times, as 2^bits < 2 n."""
    half = np.uint64((bits + 1) // 2)
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    high_mask = (np.uint64(1) << (np.uint64(bits) - half)) - np.uint64(1)
    for i in range(len(values)):
        value = np.uint64(values[i])
        while True:
            low = value & low_mask
            high = value >> half
            if direction > 0:
                for r in range(0, _ROUNDS, 2):
                    high ^= _scramble(low, keys[r]) & high_mask
                    low ^= _scramble(high, keys[r + 1]) & low_mask
            else:
                for r in range(_ROUNDS - 2, -1, -2):
                    low ^= _scramble(high, keys[r + 1]) & low_mask
                    high ^= _scramble(low, keys[r]) & high_mask
            value = (high << half) | low
            if value < np.uint64(n):
                break
        values[i] = np.int64(value)


@kernel
def _scramble(value: np.uint64, key: np.uint64) -> np.uint64:
    value = (value ^ key) * _MULTIPLIER
    value = (value ^ (value >> np.uint64(32))) * _STRIDE
    return value >> np.uint64(32)
