"""Slow, obvious twins of the planning kernels: plain Python integers, no arrays, nothing clever."""

from __future__ import annotations

from collections.abc import Sequence

from playhead.order.blend import Blend
from playhead.seeds import MASK, fold, mix

GAMMA = 0x9E37_79B9_7F4A_7C15
STRIDE = 0xA076_1D64_78BD_642F
MULTIPLIER = 0xE703_7ED1_A0B4_28DB


def permutation(key: int, n: int) -> list[int]:
    """Where every index of [0, n) goes."""
    if n < 1 << 16:
        low = (1 << 16) - 1
        return sorted(range(n), key=lambda i: (mix((key + (i + 1) * STRIDE) & MASK) & ~low, i))
    return [permuted(key, i, n) for i in range(n)]


def permuted(key: int, index: int, n: int) -> int:
    """One index through the Feistel network, again and again until it lands below n."""
    bits = (n - 1).bit_length()
    half = (bits + 1) // 2
    keys = [mix((key + (i + 1) * STRIDE) & MASK) for i in range(8)]
    while True:
        high, low = divmod(index, 1 << half)
        for i in range(0, 8, 2):
            high ^= scramble(low, keys[i]) % (1 << (bits - half))
            low ^= scramble(high, keys[i + 1]) % (1 << half)
        index = (high << half) + low
        if index < n:
            return index


def scramble(value: int, key: int) -> int:
    value = ((value ^ key) * MULTIPLIER) & MASK
    value = ((value ^ (value >> 32)) * STRIDE) & MASK
    return value >> 32


def shuffle(key: int, deck: list[int]) -> list[int]:
    """Fisher and Yates, from the end."""
    deck = list(deck)
    for i in range(len(deck) - 1, 0, -1):
        noise = mix((key + (i + 1) * GAMMA) & MASK) >> 32
        j = (noise * (i + 1)) >> 32
        deck[i], deck[j] = deck[j], deck[i]
    return deck


def blended(blend: Blend, num_draws: int) -> list[tuple[int, int]]:
    """(member, number) of the first draws, counted one by one."""
    shares = blend.shares.tolist()
    bounds = [sum(shares[:i]) for i in range(len(shares) + 1)]
    total = bounds[-1]
    seen = [0] * len(shares)
    found: list[tuple[int, int]] = []
    passes = 0
    while len(found) < num_draws:
        limit = blend.pass_draws or num_draws + blend.block
        for block, start in enumerate(range(0, limit, blend.block)):
            end = min(start + blend.block, limit)
            deck = []
            for member in range(len(shares)):
                until = end * bounds[member + 1] // total - end * bounds[member] // total
                before = start * bounds[member + 1] // total - start * bounds[member] // total
                deck += [member] * (until - before)
            for member in shuffle(fold(fold(blend.key, passes), block), deck):
                found.append((member, seen[member]))
                seen[member] += 1
        passes += 1
    return found[:num_draws]


def cut_by_budget(costs: Sequence[int], budget: int) -> list[list[int]]:
    batches: list[list[int]] = []
    for i in range(len(costs)):
        together = [*batches[-1], i] if batches else []
        if together and len(together) * max(costs[j] for j in together) <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def bucketed(
    lengths: Sequence[int], outputs: Sequence[int], edges: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> list[list[int]]:
    batches: list[list[int]] = []
    open_batch: dict[int, list[int]] = {}
    for i, (length, output) in enumerate(zip(lengths, outputs, strict=True)):
        holding = [b for b, (most, most_output) in enumerate(edges) if length <= most and output <= most_output]
        bucket = holding[0] if holding else len(edges)
        size = sizes[bucket] if holding else 1
        if bucket not in open_batch or len(open_batch[bucket]) == size:
            open_batch[bucket] = []
            batches.append(open_batch[bucket])
        open_batch[bucket].append(i)
    return batches


def packed(lengths: Sequence[int], max_length: int) -> list[list[int]]:
    """Best fit by looking at every bin; of equally full ones the one touched last."""
    bins: list[list[int]] = []
    touched: list[int] = []
    long_first = [i for i, n in enumerate(lengths) if 2 * n > max_length]
    long_first += [i for i, n in enumerate(lengths) if 2 * n <= max_length]
    for clock, i in enumerate(long_first):
        free = [max_length - sum(lengths[j] for j in members) for members in bins]
        fitting = [b for b in range(len(bins)) if free[b] >= lengths[i] and free[b] > 0]
        if fitting:
            best = min(fitting, key=lambda b: (free[b], -touched[b]))
            bins[best].append(i)
            touched[best] = clock
        else:
            bins.append([i])
            touched.append(clock)
    return [sorted(members) for members in bins]


def receipt(before: int, step: int, lanes: Sequence[tuple[int, Sequence[tuple[int, int, int]]]]) -> int:
    """The digest of a step: numbered lanes of (hash of source name, epoch, row), sub-stream after sub-stream."""
    value = fold(before, step)
    for lane, picks in lanes:
        if picks:
            value = fold(fold(value, lane), len(picks))
        for name_hash, epoch, row in picks:
            value = fold(value, fold(fold(name_hash, epoch), row))
    return value
