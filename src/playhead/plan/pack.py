"""Bins filled by best fit over all open bins of the window.

Samples longer than half a bin go first, then the rest, each in draw order: sorting by length would fill hardly more
and make samples of like length, and copies of one row, meet in a pack.
"""

from __future__ import annotations

import numpy as np

from playhead.types import IntArray, UIntArray, kernel

_NONE = -1
_DE_BRUIJN = np.uint64(0x03F7_9D71_B4CB_0A89)
_BIT_OF = np.zeros(64, np.int64)
for _bit in range(64):
    _BIT_OF[((0x03F7_9D71_B4CB_0A89 << _bit) & 0xFFFF_FFFF_FFFF_FFFF) >> 58] = _bit


def pack(lengths: IntArray, max_length: int) -> tuple[IntArray, int]:
    """The bin of each sample, and the number of bins; a sample longer than a bin gets one of its own.

    Law: each sample goes to the fullest open bin that still holds it (of several, the one filled last), else to a
    new one. Free space is kept in a two-level bitmap, so a search costs the same in long bins and fine units.
    """
    bins = np.empty(len(lengths), np.int64)
    words = np.zeros(max_length // 64 + 1, np.uint64)
    summary = np.zeros(len(words) // 64 + 1, np.uint64)
    top = np.full(max_length + 1, _NONE, np.int64)
    below = np.empty(len(lengths), np.int64)
    return bins, int(_best_fit(lengths, max_length, words, summary, top, below, bins))


@kernel
def _best_fit(
    lengths: IntArray,
    max_length: int,
    words: UIntArray,
    summary: UIntArray,
    top: IntArray,
    below: IntArray,
    bins: IntArray,
) -> int:
    """`top` has the bin filled last among those with this much free, `below`, for each bin, the one filled before."""
    num_bins = 0
    for long_ones in (True, False):
        for i in range(len(lengths)):
            length = lengths[i]
            if (2 * length > max_length) != long_ones:
                continue
            free = _least_at_least(words, summary, length) if length <= max_length else _NONE
            if free == _NONE:
                chosen = num_bins
                num_bins += 1
                left = max_length - length
            else:
                chosen = top[free]
                top[free] = below[chosen]
                if top[free] == _NONE:
                    _clear(words, summary, free)
                left = free - length
            bins[i] = chosen
            if left > 0:
                if top[left] == _NONE:
                    _mark(words, summary, left)
                below[chosen] = top[left]
                top[left] = chosen
    return num_bins


@kernel
def _lowest_bit(word: np.uint64) -> int:
    return _BIT_OF[((word & (~word + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58)]


@kernel
def _mark(words: UIntArray, summary: UIntArray, value: int) -> None:
    word = value >> 6
    words[word] |= np.uint64(1) << np.uint64(value & 63)
    summary[word >> 6] |= np.uint64(1) << np.uint64(word & 63)


@kernel
def _clear(words: UIntArray, summary: UIntArray, value: int) -> None:
    word = value >> 6
    words[word] &= ~(np.uint64(1) << np.uint64(value & 63))
    if words[word] == np.uint64(0):
        summary[word >> 6] &= ~(np.uint64(1) << np.uint64(word & 63))


@kernel
def _least_at_least(words: UIntArray, summary: UIntArray, value: int) -> int:
    """The least marked number that is not below `value`, or -1."""
    word = value >> 6
    rest = words[word] >> np.uint64(value & 63)
    if rest != np.uint64(0):
        return value + _lowest_bit(rest)
    word += 1
    if word >= len(words):
        return _NONE
    group = word >> 6
    left = (summary[group] >> np.uint64(word & 63)) << np.uint64(word & 63)
    while left == np.uint64(0):
        group += 1
        if group >= len(summary):
            return _NONE
        left = summary[group]
    word = (group << 6) + _lowest_bit(left)
    return (word << 6) + _lowest_bit(words[word])
