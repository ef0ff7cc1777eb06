"""Weights as fixed-point shares, and the block a blend needs."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from playhead.order.blend import ENDLESS, Blend
from playhead.seeds import extend
from playhead.types import IntArray

SHARE_UNITS = 1 << 31
SMALLEST_BLOCK = 1 << 10
LARGEST_BLOCK = 1 << 20


def fixed_point(weights: list[Fraction]) -> IntArray:
    """Shares over SHARE_UNITS, by largest remainder.

    Law: they sum to SHARE_UNITS and each is within one unit of exact.
    """
    scale = lcm(*(weight.denominator for weight in weights))
    whole = [weight.numerator * (scale // weight.denominator) for weight in weights]  # many fractions would be slow
    total = sum(whole)
    shares = [weight * SHARE_UNITS // total for weight in whole]
    by_remainder = sorted(range(len(whole)), key=lambda i: (-(whole[i] * SHARE_UNITS % total), i))
    for i in by_remainder[: SHARE_UNITS - sum(shares)]:
        shares[i] += 1
    return np.array(shares, np.int64)


def too_small(weights: list[Fraction]) -> list[int]:
    """The positions of weights that are not worth one draw in the largest block."""
    shares = fixed_point(weights)
    return [i for i, share in enumerate(shares) if share * LARGEST_BLOCK < SHARE_UNITS]


def block_for(smallest: int, total: int) -> int:
    """The smallest allowed block in which every share, the tail's aside, is worth a draw."""
    block = SMALLEST_BLOCK
    while block * smallest < total and block < LARGEST_BLOCK:
        block *= 2
    return block


def weighted(weights: list[Fraction], key: int) -> Blend:
    """An endless blend; weights must not be `too_small`."""
    shares = fixed_point(weights)
    return Blend(shares, block_for(int(shares.min()), SHARE_UNITS), key, ENDLESS)


def passes(rows: list[int], key: int) -> tuple[Blend, list[int]]:
    """A blend that takes every row once in each pass, and the order of its members.

    Members too small for a block go to the tail.
    """
    total = sum(rows)
    large = [i for i, n in enumerate(rows) if n * LARGEST_BLOCK >= total]
    small = [i for i, n in enumerate(rows) if n * LARGEST_BLOCK < total]
    shares = [rows[i] for i in large]
    block = block_for(min(shares), total)
    if not small:
        return Blend(np.array(shares, np.int64), block, key, total), large
    tail, order = passes([rows[i] for i in small], extend(key, "tail"))
    outer = Blend(np.array([*shares, tail.total], np.int64), block, key, total, tail)
    return outer, large + [small[i] for i in order]
