"""Which source a draw falls to, in closed form.

Draws come in blocks. Before the block that begins at draw t, the members up to s have been drawn
floor(t * cumulative share of s) times; inside a block the multiset of members is shuffled by key. So counts are
always within one of exact, every source is read in its own order, and no counter is saved.

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
    start = _block_start(blend, first)
    reached = _reached(blend, start % blend.pass_draws if blend.pass_draws else start)
    scratch = np.empty(len(blend.shares), np.int64), np.empty(blend.block, np.int64)
    _fill(
        np.uint64(blend.key),
        first,
        blend.pass_draws,
        blend.cumulative,
        *reached,
        *_reached(blend, blend.block),
        *scratch,
        members,
        numbers,
    )
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
    return np.diff(passes * blend.cumulative + _reached(blend, inside)[0])


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


def _reached(blend: Blend, draws: int) -> tuple[IntArray, IntArray]:
    """floor(draws * c / total) for each cumulative share c, and what remains of it."""
    found = [divmod(draws * share, blend.total) for share in blend.cumulative.tolist()]
    return np.array([q for q, _ in found], np.int64), np.array([r for _, r in found], np.int64)


@kernel
def _fill(
    key: np.uint64,
    first: int,
    pass_draws: int,
    cumulative: IntArray,
    reached: IntArray,
    rest: IntArray,
    growth: IntArray,
    growth_rest: IntArray,
    count: IntArray,
    deck: IntArray,
    members: IntArray,
    numbers: IntArray,
) -> None:
    """Go through the blocks. `reached` and `rest` are those of the first block's start, `growth` those of a block:
    adding one to the other from block to block stays exact where a product would pass 64 bits.
    """
    stop = first + len(members)
    draw = first
    while draw < stop:
        passes = draw // pass_draws if pass_draws else 0
        begin = passes * pass_draws
        number = (draw - begin) // len(deck)
        start = begin + number * len(deck)
        size = min(len(deck), begin + pass_draws - start) if pass_draws else len(deck)
        for m in range(len(count)):
            count[m] = passes * (cumulative[m + 1] - cumulative[m]) + reached[m + 1] - reached[m]
        ends_pass = pass_draws > 0 and start + size == begin + pass_draws
        _lay_out(ends_pass, cumulative, reached, rest, growth, growth_rest, deck)
        block_key = fold64(fold64(key, np.uint64(passes)), np.uint64(number))
        for i in range(size - 1, 0, -1):
            j = nth_below(block_key, i, i + 1)
            deck[i], deck[j] = deck[j], deck[i]
        for i in range(min(size, stop - start)):
            if start + i >= draw:
                members[start + i - first] = deck[i]
                numbers[start + i - first] = count[deck[i]]
            count[deck[i]] += 1
        draw = start + size


@kernel
def _lay_out(
    ends_pass: bool,
    cumulative: IntArray,
    reached: IntArray,
    rest: IntArray,
    growth: IntArray,
    growth_rest: IntArray,
    deck: IntArray,
) -> None:
    """A block's multiset in member order; `reached` and `rest` move on to the next block, or to a new pass."""
    filled = 0
    for m in range(1, len(cumulative)):
        before = reached[m]
        reached[m] += growth[m]
        rest[m] += growth_rest[m]
        if rest[m] >= cumulative[-1]:
            rest[m] -= cumulative[-1]
            reached[m] += 1
        if ends_pass:
            reached[m] = cumulative[m]
        while filled < reached[m] - before:
            deck[filled] = m - 1
            filled += 1
        if ends_pass:
            reached[m] = 0
            rest[m] = 0
