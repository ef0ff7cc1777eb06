"""The twins of `seeds.mix` and `seeds.fold` for arrays of keys, and compiled, for keys extended inside kernels."""

from __future__ import annotations

import numpy as np

from playhead.seeds import INTEGER_TAG, mix
from playhead.types import UIntArray, kernel

_TAG = np.uint64(INTEGER_TAG)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_GAMMA = np.uint64(0x9E37_79B9_7F4A_7C15)


def mix_each(values: UIntArray) -> UIntArray:
    """Law: mix_each(v)[i] == seeds.mix(v[i])."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def fold_each(key: int, values: UIntArray) -> UIntArray:
    """Law: fold_each(k, v)[i] == seeds.fold(k, v[i])."""
    return mix_each(values + np.uint64(mix(key ^ INTEGER_TAG)))


@kernel
def mix64(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@kernel
def fold64(key: np.uint64, value: np.uint64) -> np.uint64:
    """Law: fold64(k, v) == seeds.fold(k, v)."""
    return mix64(mix64(key ^ _TAG) + value)


@kernel
def nth_below(key: np.uint64, nth: int, bound: int) -> int:
    """The nth number of the key's sequence, uniform in [0, bound); bound at most 2^32."""
    noise = mix64(key + np.uint64(nth + 1) * _GAMMA) >> np.uint64(32)
    return int(np.int64((noise * np.uint64(bound)) >> np.uint64(32)))
