"""The shuffle kernel against numpy's own generator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.megatron.twister import WORDS, Twister, _draw_wide, mask_of, temper


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 3000), min_size=1, max_size=4),
    st.sampled_from([np.int32, np.uint32, np.int64]),
)
def test_shuffling_is_that_of_numpy_and_leaves_the_generator_where_numpy_does(seed, sizes, dtype) -> None:
    theirs, ours = np.random.RandomState(seed), Twister(seed)
    for size in sizes:
        expected = np.arange(size, dtype=dtype)
        found = expected.copy()
        theirs.shuffle(expected)
        ours.shuffle(found)
        assert np.array_equal(found, expected)
    _, words, position, *_ = theirs.get_state(legacy=True)
    assert np.array_equal(ours.words, words)
    assert ours.place[0] == position


@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 1_000_003])
def test_large_arrays_too(size: int) -> None:
    expected = np.arange(size, dtype=np.uint32)
    found = expected.copy()
    np.random.RandomState(1234).shuffle(expected)
    Twister(1234).shuffle(found)
    assert np.array_equal(found, expected)


def test_past_32_bits_a_draw_takes_two_words_the_high_one_first() -> None:
    top, twister = 2**33 + 12345, Twister(9)
    mask = mask_of(top)
    tempered, targets = np.empty(WORDS, np.uint32), np.empty(500, np.int64)
    temper(twister.words, tempered)
    _draw_wide(twister.words, tempered, twister.place, targets, top, mask)
    generator, expected = np.random.RandomState(9), []
    while len(expected) < len(targets):
        high, low = (int(word) for word in generator.randint(0, 2**32, 2, dtype=np.uint32))
        value = (high << 32 | low) & mask
        if value <= top - len(expected):
            expected.append(value)
    assert targets.tolist() == expected
