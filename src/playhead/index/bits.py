"""Rank and select on a bitmap: which row is the n-th selected, and the rank of a row among the selected.

The bitmap is uint64 words, lowest bit first; `before[b]` counts the set bits before block b of 512.
"""

from __future__ import annotations

import numpy as np

from playhead.types import BoolArray, IntArray, LengthArray, UIntArray, kernel

BLOCK = 512


def pack_bits(mask: BoolArray) -> UIntArray:
    """A mask as words; the last word is padded with zeros."""
    packed = np.packbits(mask, bitorder="little")
    padded = np.zeros((packed.size + 7) // 8 * 8, dtype=np.uint8)
    padded[: packed.size] = packed
    return padded.view("<u8").astype(np.uint64, copy=False)


@kernel
def count_blocks(words: UIntArray) -> IntArray:
    """The number of set bits in each block of 512."""
    counts = np.zeros((words.size + 7) // 8, dtype=np.int64)
    for i in range(words.size):
        counts[i // 8] += _popcount(words[i])
    return counts


@kernel
def _popcount(word: np.uint64) -> int:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))


@kernel
def _block_of(before: IntArray, row: int) -> int:
    """The block that holds a selected row: guessed as if rows were spread evenly, which they nearly are."""
    last = before.size - 1
    guess = max(0, min(last, row * last // max(1, before[last])))
    step = 1
    if before[guess] <= row:
        low, high = guess, guess
        while high < last and before[min(last, high + step)] <= row:
            high = min(last, high + step)
            low = high
            step *= 2
        high = min(last, high + step)
    else:
        low, high = guess, guess
        while low > 0 and before[low] > row:
            high = low
            low = max(0, low - step)
            step *= 2
    while low < high:
        middle = (low + high + 1) // 2
        if before[middle] <= row:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _select(words: UIntArray, before: IntArray, row: int) -> int:
    block = _block_of(before, row)
    left = row - before[block]
    word = block * 8
    if left < 0:
        raise ValueError("the counts do not fit the bitmap")
    while True:
        if word >= words.size:
            raise ValueError("the counts do not fit the bitmap")
        here = _popcount(words[word])
        if left < here:
            break
        left -= here
        word += 1
    value = words[word]
    base = word * 64
    for width in (32, 16, 8, 4, 2, 1):
        lower = _popcount(value & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))
        if left >= lower:
            left -= lower
            value >>= np.uint64(width)
            base += width
    return base


@kernel
def select(words: UIntArray, before: IntArray, rows: IntArray) -> IntArray:
    """The raw row of each selected row. Rows must be below the number of set bits; ValueError where they are not."""
    found = np.empty(rows.size, dtype=np.int64)
    for i in range(rows.size):
        found[i] = _select(words, before, rows[i])
    return found


@kernel
def select_lengths(words: UIntArray, before: IntArray, rows: IntArray, lengths: LengthArray) -> LengthArray:
    """lengths[select(rows)], in one pass."""
    found = np.empty(rows.size, dtype=np.uint32)
    for i in range(rows.size):
        raw = _select(words, before, rows[i])
        if raw >= lengths.size:
            raise ValueError("the counts do not fit the bitmap")
        found[i] = lengths[raw]
    return found


@kernel
def rank(words: UIntArray, before: IntArray, raw: IntArray) -> IntArray:
    """The number of selected rows before each raw row; a raw row may also be the number of raw rows."""
    found = np.empty(raw.size, dtype=np.int64)
    for i in range(raw.size):
        block = raw[i] // 512
        if block >= before.size:
            block = before.size - 1
        count = before[block]
        for word in range(block * 8, min(raw[i] // 64, words.size)):
            count += _popcount(words[word])
        if raw[i] // 64 < words.size:
            below = (np.uint64(1) << np.uint64(raw[i] % 64)) - np.uint64(1)
            count += _popcount(words[raw[i] // 64] & below)
        found[i] = count
    return found


@kernel
def contains(words: UIntArray, raw: IntArray) -> BoolArray:
    """Whether each raw row is selected."""
    found = np.empty(raw.size, dtype=np.bool_)
    for i in range(raw.size):
        found[i] = (words[raw[i] // 64] >> np.uint64(raw[i] % 64)) & np.uint64(1) == np.uint64(1)
    return found
