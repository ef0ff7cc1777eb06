"""Decoded audio as the recipe wants it: its channels, its rate, its dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from playhead.errors import RecipeError, SampleError
from playhead.formats.media import Media, MediaCrop
from playhead.formats.rows import Sample
from playhead.read.stored import StoredArray
from playhead.recipe.values import AudioOptions
from playhead.types import Array

_INT16 = np.dtype("<i2")
_FULL = np.float32(1 << 15)


class Audio(NamedTuple):
    """Audio of float32, of shape (samples,) or (samples, channels); `was_int16` says that it was delivered as that."""

    samples: Array
    rate: int
    was_int16: bool = False

    def at_rate(self, rate: int) -> Audio:
        return self if rate == self.rate else Audio(_resampled(self.samples, self.rate, rate), rate, self.was_int16)

    def cropped(self, crop: MediaCrop) -> Audio:
        first, end = crop.frames(0, len(self.samples), self.rate)
        return Audio(self.samples[first:end], self.rate, self.was_int16)


def audio_in(sample: Sample, field: str) -> Audio:
    """The decoded audio in a field; a sample without it is a SampleError."""
    found, rate = sample.get(field), sample.get(f"{field}_rate")
    if not isinstance(found, np.ndarray | StoredArray) or not isinstance(rate, int):
        raise SampleError(
            f'field "{field}" holds no decoded audio to augment',
            found=f"fields: {', '.join(map(str, sample)) or 'none'}",
            expected=f'audio in "{field}", and its rate in "{field}_rate"',
            fix="name the field that holds audio with `field`, or set `augment: []` for the source",
        )
    samples = np.asarray(found)
    if samples.dtype == np.int16:
        return Audio(samples.astype(np.float32) / _FULL, rate, True)
    return Audio(samples.astype(np.float32, copy=False), rate)


def options_for(media: Media, how: AudioOptions) -> AudioOptions:
    """The settings of the recipe and, where it has none, those of the medium."""
    if (media.rate is None or how.sample_rate is not None) and not (media.mono and how.channels == "all"):
        return how
    channels = "mono" if media.mono and how.channels == "all" else how.channels
    return replace(how, sample_rate=how.sample_rate or media.rate, channels=channels)


def as_wanted(path: str, samples: Array | StoredArray, rate: int, how: AudioOptions) -> tuple[Any, int]:
    """The audio and its rate. Laws: audio that needs no change is kept; 16 bits stay the same 16 bits as int16."""
    wanted_rate = how.sample_rate or rate
    if how.channels != "all" and samples.ndim > 1:
        samples = _channels(path, np.asarray(samples), how)
    if wanted_rate != rate:
        samples = _resampled(np.asarray(samples), rate, wanted_rate)
    if how.dtype == "int16":
        samples = as_int16(samples)
    return samples, wanted_rate


def chosen_channels(path: str, samples: Array | StoredArray, numbers: Sequence[int], chosen_by: str) -> Any:
    """Some channels of audio, in the order given; `chosen_by` names the setting that selects them."""
    num_channels = 1 if samples.ndim == 1 else samples.shape[1]
    if max(numbers) >= num_channels:
        raise SampleError(
            f"{path}: has no channel {max(numbers)}",
            found=f"{num_channels} channel{'s' if num_channels > 1 else ''}, counted from 0",
            fix=f"correct {chosen_by}, or leave the row out",
        )
    if list(numbers) == list(range(num_channels)):
        return samples
    chosen = np.asarray(samples).reshape(len(samples), num_channels)[:, list(numbers)]
    return np.ascontiguousarray(chosen[:, 0] if len(numbers) == 1 else chosen)


def _channels(path: str, samples: Array, how: AudioOptions) -> Array:
    if how.channels == "mono":
        mean: Array = samples.mean(axis=1, dtype=np.float32)
        return mean
    numbers = how.channels if isinstance(how.channels, list) else [0]
    found: Array = chosen_channels(path, samples, numbers, "`channels` of `audio` in the recipe")
    return found


def _resampled(samples: Array, rate: int, wanted: int) -> Array:
    try:
        import soxr
    except ImportError as error:
        raise RecipeError(
            "audio.sample_rate: resampling needs the package soxr, which is not installed",
            found=f"audio at {rate:,} Hz, wanted at {wanted:,}",
            fix="pip install 'playhead[audio]'",
        ) from error
    found: Array = soxr.resample(samples, rate, wanted, quality="HQ")
    return found


def as_int16(samples: Array | StoredArray) -> Array | StoredArray:
    """Fractions from -1 to 1 as 16 bits; values beyond are clipped."""
    if isinstance(samples, StoredArray):
        if samples.stored == _INT16:
            return StoredArray(samples.data, samples.stored, samples.shape)
        samples = np.asarray(samples)
    return np.clip(np.rint(samples * _FULL), -(1 << 15), (1 << 15) - 1).astype(np.int16)
