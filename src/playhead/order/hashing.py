"""The compiled twins of `seeds.mix` and `seeds.fold`, for keys extended inside kernels."""

from __future__ import annotations

import numpy as np

from playhead.seeds import INTEGER_TAG
from playhead.types import kernel

_TAG = np.uint64(INTEGER_TAG)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_GAMMA = np.uint64(0x9E37_79B9_7F4A_7C15)


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
