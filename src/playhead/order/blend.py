"""Which source a draw falls to, in closed form.

Draws come in blocks. Before the block that begins at draw t, the members up to s have been drawn
floor(t * cumulative share of s) times; inside a block the multiset of members is shuffled by key. So counts are
within one of exact for ever, every source is walked in its own order, and no counter is saved.

The closed form needs every share to be worth a draw in a block, except the last one. So in passes, where no source may
be refused for being small, the small ones stand together as the last member, with a blend of their own: the tail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from playhead.order.hashing import fold64, nth_below
from playhead.types import IntArray, kernel

ENDLESS = 0


@dataclass(frozen=True)
class Blend:
    """Shares are numerators over their sum.

    With `pass_draws` (equal to that sum: the rows of all members) the blocks restart in every pass, so each member
    is drawn exactly its share of times in each pass. With a `tail` the last share is the tail's, and the tail's
    members take the numbers from there on.
    """

    shares: IntArray
    block: int
    key: int
    pass_draws: int = ENDLESS
    tail: Blend | None = None

    @cached_property
    def cumulative(self) -> IntArray:
        return np.concatenate(([0], np.cumsum(self.shares)))

    @property
    def total(self) -> int:
        return int(self.cumulative[-1])


def resolve(blend: Blend, first: int, stop: int) -> tuple[IntArray, IntArray]:
    """Member of each draw in [first, stop), and the draw's number among that member's draws.

    Law: at the start of every block each member's count is within one of its exact share.
    """
    if len(blend.shares) == 1 and blend.tail is None:
        return np.zeros(stop - first, np.int64), np.arange(first, stop, dtype=np.int64)
    members = np.empty(stop - first, np.int64)
    numbers = np.empty(stop - first, np.int64)
    _fill(np.uint64(blend.key), blend.block, blend.pass_draws, blend.cumulative, first, members, numbers)
    if blend.tail is not None:
        last = len(blend.shares) - 1
        (small,) = np.nonzero(members == last)
        if len(small):
            begin = int(numbers[small[0]])
            inner, numbers[small] = resolve(blend.tail, begin, begin + len(small))
            members[small] = last + inner
    return members, numbers


def counts_at(blend: Blend, draw: int) -> IntArray:
    """How often each member has been drawn before `draw`."""
    start = _block_start(blend, draw)
    counts = counts_before_block(blend, start)
    if start < draw:
        members, _ = resolve(replace(blend, tail=None), start, draw)
        counts += np.bincount(members, minlength=len(counts))
    if blend.tail is None:
        return counts
    return np.concatenate((counts[:-1], counts_at(blend.tail, int(counts[-1]))))


def counts_before_block(blend: Blend, draw: int) -> IntArray:
    """As `counts_at`, in closed form and with the tail as one, for a draw that begins a block."""
    passes, inside = divmod(draw, blend.pass_draws) if blend.pass_draws else (0, draw)
    before = np.array([passes * int(c) + inside * int(c) // blend.total for c in blend.cumulative], np.int64)
    return np.diff(before)


def draw_of(blend: Blend, member: int, number: int) -> int:
    """The draw that is the member's `number`-th: the inverse of `resolve`."""
    last = len(blend.shares) - 1
    if blend.tail is not None and member >= last:
        number = draw_of(blend.tail, member - last, number)
        member = last
    share = int(blend.shares[member])
    passes, inside = divmod(number, share) if blend.pass_draws else (0, number)
    low, high = 0, inside * blend.total // (share * blend.block) + 2
    while high - low > 1:
        middle = (low + high) // 2
        if _count_before(blend, member, middle * blend.block) <= inside:
            low = middle
        else:
            high = middle
    start = passes * blend.pass_draws + low * blend.block
    stop = start + blend.block
    if blend.pass_draws:
        stop = min(stop, (passes + 1) * blend.pass_draws)
    members, numbers = resolve(replace(blend, tail=None), start, stop)
    return start + int(np.flatnonzero((members == member) & (numbers == number))[0])


def _count_before(blend: Blend, member: int, inside: int) -> int:
    low, high = int(blend.cumulative[member]), int(blend.cumulative[member + 1])
    return inside * high // blend.total - inside * low // blend.total


def _block_start(blend: Blend, draw: int) -> int:
    if not blend.pass_draws:
        return draw - draw % blend.block
    inside = draw % blend.pass_draws
    return draw - inside % blend.block


@kernel
def _fill(
    key: np.uint64,
    block: int,
    pass_draws: int,
    cumulative: IntArray,
    first: int,
    members: IntArray,
    numbers: IntArray,
) -> None:
    num_members = len(cumulative) - 1
    stop = first + len(members)
    deck = np.empty(block, np.int64)
    count = np.empty(num_members, np.int64)
    draw = first
    while draw < stop:
        passes = draw // pass_draws if pass_draws else 0
        begin = passes * pass_draws
        number = (draw - begin) // block
        start = begin + number * block
        end = start + block
        if pass_draws:
            end = min(end, begin + pass_draws)
        _deal_deck(passes, start - begin, end - begin, cumulative, deck, count)
        _shuffle(fold64(fold64(key, np.uint64(passes)), np.uint64(number)), deck, end - start)
        for i in range(min(end, stop) - start):
            member = deck[i]
            if start + i >= draw:
                members[start + i - first] = member
                numbers[start + i - first] = count[member]
            count[member] += 1
        draw = min(end, stop)


@kernel
def _deal_deck(passes: int, start: int, end: int, cumulative: IntArray, deck: IntArray, count: IntArray) -> None:
    """Lay out a block's multiset in member order, and each member's count before the block."""
    total = cumulative[-1]
    filled = 0
    below = 0
    for member in range(len(count)):
        upper = scaled(start, cumulative[member + 1], total)
        count[member] = passes * (cumulative[member + 1] - cumulative[member]) + upper - below
        below = upper
        goal = scaled(end, cumulative[member + 1], total) - upper
        while filled < goal:
            deck[filled] = member
            filled += 1


@kernel
def _shuffle(key: np.uint64, deck: IntArray, size: int) -> None:
    for i in range(size - 1, 0, -1):
        j = nth_below(key, i, i + 1)
        deck[i], deck[j] = deck[j], deck[i]


@kernel
def scaled(draws: int, share: int, total: int) -> int:
    """floor(draws * share / total) without overflow, for share <= total < 2^61."""
    whole = draws // total
    rest = draws - whole * total
    if total <= (1 << 31):
        return whole * share + rest * share // total
    quotient = 0
    remainder = 0
    for bit in range(61, -1, -1):
        quotient *= 2
        remainder *= 2
        if (rest >> bit) & 1:
            remainder += share
        while remainder >= total:
            remainder -= total
            quotient += 1
    return whole * share + quotient
