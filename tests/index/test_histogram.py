from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from playhead.index.histogram import NUM_BINS, Tally, bounds, lower_bounds

lengths = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1), st.integers(7, 31).map(lambda bits: 2**bits))


def bin_of(length: int) -> int:
    """The bin of a length: the slow twin of what the tally does."""
    shift = max(0, length.bit_length() - 7)
    return 64 * shift + (length >> shift)


@given(lengths)
def test_a_length_lies_within_the_bounds_of_its_bin(length: int) -> None:
    low, high = bounds(bin_of(length))
    assert low <= length < high
    assert high - low <= max(1, length // 64)


def test_bins_cover_every_length_once() -> None:
    edges = [bounds(number) for number in range(NUM_BINS)]
    assert edges[0][0] == 0
    assert edges[-1][1] == 2**32
    assert all(left[1] == right[0] for left, right in pairwise(edges))
    assert lower_bounds().tolist() == [low for low, _ in edges]


@given(st.lists(st.lists(lengths, max_size=20), max_size=5))
def test_a_tally_counts_as_one_would_by_hand(pieces: list[list[int]]) -> None:
    tally = Tally()
    for piece in pieces:
        tally.add(np.array(piece, dtype=np.uint32))
    histogram = tally.histogram()
    everything = [length for piece in pieces for length in piece]
    for number in {bin_of(length) for length in everything}:
        inside = [length for length in everything if bin_of(length) == number]
        assert (histogram.counts[number], histogram.sums[number]) == (len(inside), sum(inside))
    assert (histogram.num_rows, histogram.length_sum) == (len(everything), sum(everything))
