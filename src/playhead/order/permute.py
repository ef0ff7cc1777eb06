"""A keyed bijection on [0, n): O(1) memory, vectorised, invertible.

From 2^16 items on: an alternating Feistel network on the bits of n, walked until it lands below n. Below, where
so few bits mix badly: positions sorted by keyed hash.
"""

from __future__ import annotations

import numpy as np

from playhead.order.hashing import mix64
from playhead.types import IntArray, UIntArray, kernel

SMALL = 1 << 16
_ROUNDS = 8
_STRIDE = np.uint64(0xA076_1D64_78BD_642F)
_MULTIPLIER = np.uint64(0xE703_7ED1_A0B4_28DB)
_INDEX_MASK = np.uint64(SMALL - 1)


def permute(key: int, indices: IntArray, n: int) -> IntArray:
    """Where each index goes. Law: over all of [0, n) every value of [0, n) comes out once."""
    out = np.empty(len(indices), np.int64)
    permute_into(np.uint64(key), indices, n, out)
    return out


def unpermute(key: int, values: IntArray, n: int) -> IntArray:
    """Law: unpermute(key, permute(key, i, n), n) == i."""
    out = np.empty(len(values), np.int64)
    _unpermute_into(np.uint64(key), values, n, out)
    return out


@kernel
def permute_into(key: np.uint64, indices: IntArray, n: int, out: IntArray) -> None:
    if n < SMALL:
        table = small_table(key, n)
        for i in range(len(indices)):
            out[i] = table[indices[i]]
        return
    bits = num_bits(n)
    keys = round_keys(key)
    for i in range(len(indices)):
        out[i] = walk_forward(keys, indices[i], n, bits)


@kernel
def _unpermute_into(key: np.uint64, values: IntArray, n: int, out: IntArray) -> None:
    if n < SMALL:
        table = small_table(key, n)
        inverse = np.empty(n, np.int64)
        for i in range(n):
            inverse[table[i]] = i
        for i in range(len(values)):
            out[i] = inverse[values[i]]
        return
    bits = num_bits(n)
    keys = round_keys(key)
    for i in range(len(values)):
        out[i] = _walk_back(keys, values[i], n, bits)


@kernel
def small_table(key: np.uint64, n: int) -> IntArray:
    """The whole permutation of a small n: the index rides in the low bits of its hash, so ties cannot occur."""
    packed = np.empty(n, np.uint64)
    for i in range(n):
        packed[i] = (mix64(key + np.uint64(i + 1) * _STRIDE) & ~_INDEX_MASK) | np.uint64(i)
    packed.sort()
    return (packed & _INDEX_MASK).astype(np.int64)


@kernel
def num_bits(n: int) -> int:
    """The bits that hold every index below n."""
    bits = 0
    while (1 << bits) < n:
        bits += 1
    return bits


@kernel
def round_keys(key: np.uint64) -> UIntArray:
    keys = np.empty(_ROUNDS, np.uint64)
    for i in range(_ROUNDS):
        keys[i] = mix64(key + np.uint64(i + 1) * _STRIDE)
    return keys


@kernel
def _scramble(value: np.uint64, key: np.uint64) -> np.uint64:
    value = (value ^ key) * _MULTIPLIER
    value = (value ^ (value >> np.uint64(32))) * _STRIDE
    return value >> np.uint64(32)


@kernel
def walk_forward(keys: UIntArray, index: int, n: int, bits: int) -> int:
    """Apply the network until the value is below n: at most a few rounds, as 2^bits < 2 n."""
    half = np.uint64((bits + 1) // 2)
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    high_mask = (np.uint64(1) << (np.uint64(bits) - half)) - np.uint64(1)
    value = np.uint64(index)
    while True:
        low = value & low_mask
        high = value >> half
        for i in range(0, _ROUNDS, 2):
            high ^= _scramble(low, keys[i]) & high_mask
            low ^= _scramble(high, keys[i + 1]) & low_mask
        value = (high << half) | low
        if value < np.uint64(n):
            return int(np.int64(value))


@kernel
def _walk_back(keys: UIntArray, index: int, n: int, bits: int) -> int:
    half = np.uint64((bits + 1) // 2)
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    high_mask = (np.uint64(1) << (np.uint64(bits) - half)) - np.uint64(1)
    value = np.uint64(index)
    while True:
        low = value & low_mask
        high = value >> half
        for i in range(_ROUNDS - 2, -1, -2):
            low ^= _scramble(high, keys[i + 1]) & low_mask
            high ^= _scramble(low, keys[i]) & high_mask
        value = (high << half) | low
        if value < np.uint64(n):
            return int(np.int64(value))
