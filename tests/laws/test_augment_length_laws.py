"""The lengths that are planned for augmented audio: an upper bound of whatever is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.recipe.augment_lengths import changed_milliseconds, may_be_shorter, ratio
from playhead.recipe.augments import Augment, Crop, Gain, Noise, Pad, Speed
from playhead.recipe.units import ceil_div

chances = st.sampled_from([0.0, 0.3, 1.0])
seconds = st.floats(0.001, 100).map(lambda value: round(value, 3))
factors = st.lists(st.floats(0.1, 10).map(lambda value: round(value, 3)), min_size=1, max_size=4)
augments = st.lists(
    st.one_of(
        st.builds(Speed, factors=factors, probability=chances),
        st.builds(Crop, seconds=seconds, probability=chances),
        st.builds(Pad, seconds=seconds, probability=chances),
        st.builds(Gain, decibels=st.just((-6.0, 6.0)), probability=chances),
        st.builds(Noise, source=st.just("n"), snr=st.just((0.0, 9.0)), probability=chances),
    ),
    max_size=4,
)


def outcome(frames: int, rate: int, augment: Augment, factor: float) -> int:
    """The frames of audio after one augmentation that was drawn, as read/augment.py makes them."""
    if isinstance(augment, Speed):
        return max(1, int(frames / ratio(factor)))
    if isinstance(augment, Crop):
        return min(frames, max(1, int(augment.seconds * rate)))
    return max(frames, int(augment.seconds * rate)) if isinstance(augment, Pad) else frames


@given(augments, st.integers(1, 1 << 20), st.sampled_from([8000, 16000, 22050, 44100]), st.data())
def test_audio_is_never_longer_than_planned(listed, frames, rate, data):
    planned = changed_milliseconds(ceil_div(frames * 1000, rate), listed)
    for augment in listed:
        always, never = augment.probability == 1, augment.probability == 0
        if always or (not never and data.draw(st.booleans())):
            factor = data.draw(st.sampled_from(augment.factors)) if isinstance(augment, Speed) else 1.0
            frames = outcome(frames, rate, augment, factor)
    assert ceil_div(frames * 1000, rate) <= planned + 1
    if not may_be_shorter(listed):
        # Each step rounds by a millisecond at most, which a slower speed after it stretches.
        slack = 2 * np.prod([2, *(1 / min(each.factors) for each in listed if isinstance(each, Speed))])
        assert ceil_div(frames * 1000, rate) >= planned - max(2, slack) * len(listed)


@given(augments, st.lists(st.integers(0, 2**32 - 1), max_size=5))
def test_an_array_is_changed_as_its_numbers_are(listed, lengths):
    found = changed_milliseconds(np.array(lengths, np.uint32), listed)
    assert found.dtype == np.int64
    assert found.tolist() == [changed_milliseconds(length, listed) for length in lengths]


@given(st.lists(augments, min_size=2, max_size=2), st.integers(0, 2**32 - 1))
def test_lists_are_composed(listed, length):
    first, second = listed
    assert changed_milliseconds(length, first + second) == changed_milliseconds(
        changed_milliseconds(length, first), second
    )


@pytest.mark.parametrize(
    ("listed", "expected", "shorter"),
    [
        ([Speed(factors=[0.9, 1.0, 1.1])], 1112, True),
        ([Speed(factors=[0.9], probability=0.5)], 1112, True),
        ([Speed(factors=[1.25])], 800, False),
        ([Speed(factors=[1.25, 2.0])], 800, True),
        ([Speed(factors=[1.25], probability=0.5)], 1000, True),
        ([Speed(factors=[1.0], probability=0.5)], 1000, False),
        ([Speed(factors=[0.5], probability=0.0)], 1000, False),
        ([Crop(seconds=0.3)], 300, False),
        ([Crop(seconds=0.3, probability=0.5)], 1000, True),
        ([Crop(seconds=3)], 1000, False),
        ([Pad(seconds=2)], 2000, False),
        ([Pad(seconds=2, probability=0.5)], 2000, True),
        ([Pad(seconds=0.5)], 1000, False),
        ([Speed(factors=[0.5]), Crop(seconds=1.5), Pad(seconds=1.75)], 1750, False),
        ([Gain(decibels=(-6, 6)), Noise(source="n", snr=(0, 9))], 1000, False),
        ([], 1000, False),
    ],
    ids=str,
)
def test_the_lengths_of_a_second_of_audio(listed, expected, shorter):
    assert changed_milliseconds(1000, listed) == expected
    assert may_be_shorter(listed) is shorter
