"""Bins filled by best fit over all open bins of the window.

Samples longer than half a bin go first, then the rest, each in draw order: sorting by length would fill hardly more
and make samples of like length, and copies of one row, meet in a pack.
"""

from __future__ import annotations

import numpy as np

from playhead.types import IntArray, UIntArray, kernel

_NONE = -1
_FEW_WORDS = 16  # of the highest level, which is searched word by word
_DE_BRUIJN = np.uint64(0x03F7_9D71_B4CB_0A89)
_BIT_OF = np.zeros(64, np.int64)
for _bit in range(64):
    _BIT_OF[((0x03F7_9D71_B4CB_0A89 << _bit) & 0xFFFF_FFFF_FFFF_FFFF) >> 58] = _bit


def pack(lengths: IntArray, max_length: int) -> tuple[IntArray, int]:
    """The bin of each sample, and the number of bins; a sample longer than a bin gets one of its own.

    Law: each sample goes to the fullest open bin that still holds it (of several, the one filled last), else to a
    new one. Free space is kept in a bitmap of several levels, so a search costs the same in long bins and fine units.
    """
    bins = np.empty(len(lengths), np.int64)
    sizes = [max_length // 64 + 1]
    while sizes[-1] > _FEW_WORDS:
        sizes.append(sizes[-1] // 64 + 1)
    levels = np.cumsum([0, *sizes[:-1]])
    words = np.zeros(sum(sizes), np.uint64)
    top = np.full(max_length + 1, _NONE, np.int64)
    below = np.empty(len(lengths), np.int64)
    return bins, int(_best_fit(lengths, max_length, words, levels, top, below, bins))


@kernel
def _best_fit(
    lengths: IntArray,
    max_length: int,
    words: UIntArray,
    levels: IntArray,
    top: IntArray,
    below: IntArray,
    bins: IntArray,
) -> int:
    """`top` has the bin filled last among those with this much free, `below`, for each bin, the one filled before.

    `words` are the levels of the bitmap, which begin at `levels`: a bit of one says that a word below is not 0.
    """
    num_bins = 0
    for long_ones in (True, False):
        for i in range(len(lengths)):
            length = lengths[i]
            if (2 * length > max_length) != long_ones:
                continue
            free = _least_at_least(words, levels, length) if length <= max_length else _NONE
            if free == _NONE:
                chosen = num_bins
                num_bins += 1
                left = max_length - length
            else:
                chosen = top[free]
                top[free] = below[chosen]
                if top[free] == _NONE:
                    _clear(words, levels, free)
                left = free - length
            bins[i] = chosen
            if left > 0:
                if top[left] == _NONE:
                    _mark(words, levels, left)
                below[chosen] = top[left]
                top[left] = chosen
    return num_bins


@kernel
def _lowest_bit(word: np.uint64) -> int:
    return _BIT_OF[((word & (~word + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58)]


@kernel
def _mark(words: UIntArray, levels: IntArray, value: int) -> None:
    for level in range(len(levels)):
        at = levels[level] + (value >> 6)
        before = words[at]
        words[at] = before | (np.uint64(1) << np.uint64(value & 63))
        if before != np.uint64(0):
            break
        value >>= 6


@kernel
def _clear(words: UIntArray, levels: IntArray, value: int) -> None:
    for level in range(len(levels)):
        at = levels[level] + (value >> 6)
        words[at] &= ~(np.uint64(1) << np.uint64(value & 63))
        if words[at] != np.uint64(0):
            break
        value >>= 6


@kernel
def _least_at_least(words: UIntArray, levels: IntArray, value: int) -> int:
    """The least marked number that is not below `value`, or -1."""
    level = 0
    rest = words[value >> 6] >> np.uint64(value & 63)
    while rest == np.uint64(0) and level < len(levels) - 1:
        value = (value >> 6) + 1
        level += 1
        rest = words[levels[level] + (value >> 6)] >> np.uint64(value & 63)
    while rest == np.uint64(0):
        value = ((value >> 6) + 1) << 6
        if levels[level] + (value >> 6) == len(words):
            return _NONE
        rest = words[levels[level] + (value >> 6)]
    value += _lowest_bit(rest)
    while level > 0:
        level -= 1
        value = (value << 6) + _lowest_bit(words[levels[level] + value])
    return value
