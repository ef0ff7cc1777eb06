"""Augmentations of audio, drawn by keys of (seed, source, augmentation, epoch, row): the same on any rank and worker.

A crop that comes first is set before the audio is decoded: only that part of a long recording is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from playhead.errors import DataError, SampleError
from playhead.formats.media import Media, MediaCrop
from playhead.formats.rows import Sample
from playhead.read.audio import Audio, as_int16, audio_in
from playhead.read.generator import SampleGenerator
from playhead.read.noises import Noises
from playhead.recipe.augment_lengths import ratio
from playhead.recipe.augments import Augment, Crop, Gain, Noise, Pad, Speed
from playhead.types import Array


class _NoiseDraw(NamedTuple):
    row: int
    at: float
    snr: float


@dataclass(frozen=True)
class Augmenter:
    """The augmentations of a source in order, the key of each one's draws, and the noises that they add."""

    augments: tuple[Augment, ...]
    keys: tuple[int, ...]
    noises: Noises

    def set_segments(self, samples: list[Sample], generators: Sequence[SampleGenerator]) -> list[Sample]:
        """Undecoded samples, with their media cropped where a crop is the first augmentation of its field."""
        for number in self._first_crops:
            crop = self.augments[number]
            assert isinstance(crop, Crop)
            samples = [
                self._with_segment(number, crop, sample, generator)
                for sample, generator in zip(samples, generators, strict=True)
            ]
        return samples

    def run(
        self, undecoded: Sequence[Sample], samples: Sequence[Sample], generators: Sequence[SampleGenerator]
    ) -> tuple[list[Sample], SampleError | DataError | None]:
        """Decoded samples augmented, up to the first that fails, and its error.

        `undecoded` are the samples as `set_segments` returned them.
        """
        fetched = {
            number: self._fetched(number, augment, generators[: len(samples)])
            for number, augment in enumerate(self.augments)
            if isinstance(augment, Noise)
        }
        done: list[Sample] = []
        try:
            for i, sample in enumerate(samples):
                made = sample
                for number, augment in enumerate(self.augments):
                    if number in self._first_crops and type(undecoded[i].get(augment.field)) is Media:
                        continue
                    if isinstance(augment, Noise):
                        made = self._with_noise(augment, made, *fetched[number][i])
                    else:
                        made = _augmented(augment, made, generators[i].keyed(self.keys[number]))
                done.append(made)
        except (SampleError, DataError) as error:
            return done, error
        return done, None

    @cached_property
    def _first_crops(self) -> tuple[int, ...]:
        """The numbers of the crops that are the first augmentation of their field."""
        fields = [augment.field for augment in self.augments]
        return tuple(
            number
            for number, augment in enumerate(self.augments)
            if isinstance(augment, Crop) and augment.field not in fields[:number]
        )

    def _with_segment(self, number: int, crop: Crop, sample: Sample, generator: SampleGenerator) -> Sample:
        media = sample.get(crop.field)
        draws = generator.keyed(self.keys[number])
        if not isinstance(media, Media) or not _applies(crop, draws):
            return sample
        return {**sample, crop.field: replace(media, crop=MediaCrop(crop.seconds, draws.random()))}

    def _fetched(
        self, number: int, augment: Noise, generators: Sequence[SampleGenerator]
    ) -> list[tuple[_NoiseDraw | None, Sample | None]]:
        """For each sample its draws, and the row of noise, read with the others; no draws if it gets no noise."""
        source = self.noises[augment.source]
        drawn = [_noise_draw(augment, each.keyed(self.keys[number]), source.table.num_rows) for each in generators]
        rows = [draw.row for draw in drawn if draw is not None]
        raws = source.raws(rows)
        unread = iter([None] * len(rows) if raws is None else raws)
        return [(draw, None if draw is None else next(unread)) for draw in drawn]

    def _with_noise(self, augment: Noise, sample: Sample, draw: _NoiseDraw | None, raw: Sample | None) -> Sample:
        if draw is None:
            return sample
        audio = audio_in(sample, augment.field)
        crop = MediaCrop(len(audio.samples) / audio.rate, draw.at)
        found = self.noises[augment.source].audio(draw.row, raw, augment.noise_field or augment.field, crop)
        return _put(sample, augment, audio, with_noise(audio, found, draw.snr))


def with_gain(audio: Audio, decibels: float) -> Array:
    return audio.samples * np.float32(10 ** (decibels / 20))


def with_noise(audio: Audio, noise: Audio, snr: float) -> Array:
    """The noise added at a signal-to-noise ratio in decibels; shorter noise is repeated. Silence is not changed."""
    samples, added = audio.samples, noise.at_rate(audio.rate).samples
    if added.ndim > 1 and added.shape[1:] != samples.shape[1:]:
        added = added.mean(axis=1)
    added = np.resize(added, (len(samples), *added.shape[1:])) if len(added) < len(samples) else added[: len(samples)]
    signal_power, noise_power = (float(np.mean(np.square(each, dtype=np.float64))) for each in (samples, added))
    if not signal_power or not noise_power:
        return samples
    factor = np.float32(np.sqrt(signal_power / noise_power / 10 ** (snr / 10)))
    found: Array = samples + factor * (added[:, None] if added.ndim < samples.ndim else added)
    return found


def with_speed(audio: Audio, factor: float) -> Array:
    """The audio played faster or slower. Law: it has no more frames than its own divided by the factor, but one."""
    fraction = ratio(factor)
    if fraction == 1:
        return audio.samples
    num_frames = max(1, len(audio.samples) * fraction.denominator // fraction.numerator)
    sped = Audio(audio.samples, audio.rate * fraction.numerator).at_rate(audio.rate * fraction.denominator)
    return sped.samples[:num_frames] if len(sped.samples) else audio.samples[:1]


def padded_to(audio: Audio, seconds: float) -> Array:
    """The audio with zeros at its end, up to this long at least."""
    missing = MediaCrop(seconds).num_frames(audio.rate) - len(audio.samples)
    if missing <= 0:
        return audio.samples
    return np.concatenate([audio.samples, np.zeros((missing, *audio.samples.shape[1:]), np.float32)])


def _augmented(augment: Gain | Speed | Crop | Pad, sample: Sample, draws: SampleGenerator) -> Sample:
    if not _applies(augment, draws):
        return sample
    audio = audio_in(sample, augment.field)
    if isinstance(augment, Gain):
        made = with_gain(audio, draws.uniform(*augment.decibels))
    elif isinstance(augment, Speed):
        made = with_speed(audio, augment.factors[draws.integers(len(augment.factors))])
    elif isinstance(augment, Crop):
        made = audio.cropped(MediaCrop(augment.seconds, draws.random())).samples
    else:
        made = padded_to(audio, augment.seconds)
    return _put(sample, augment, audio, made)


def _applies(augment: Augment, draws: SampleGenerator) -> bool:
    return augment.probability == 1 or bool(draws.random() < augment.probability)


def _noise_draw(augment: Noise, draws: SampleGenerator, num_rows: int) -> _NoiseDraw | None:
    if not _applies(augment, draws):
        return None
    return _NoiseDraw(int(draws.integers(num_rows)), draws.random(), draws.uniform(*augment.snr))


def _put(sample: Sample, augment: Augment, before: Audio, samples: Array) -> Sample:
    """The sample with its audio changed, of the dtype that it had."""
    return {**sample, augment.field: as_int16(samples) if before.was_int16 else samples}
