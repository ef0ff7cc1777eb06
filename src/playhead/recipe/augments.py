"""The values of `augment`: random changes to the audio of a sample, each with its own parameters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Probability = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(gt=0)]
Factor = Annotated[float, Meta(gt=0)]

AUDIO_FIELD = "audio"


class Gain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="gain"):
    """Audio made louder or quieter by a number of decibels from a range."""

    decibels: tuple[float, float]
    probability: Probability = 1.0
    field: str = AUDIO_FIELD


class Noise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="noise"):
    """A recording of a source in `noises` added, at a signal-to-noise ratio from a range, in decibels."""

    source: str
    snr: tuple[float, float]
    noise_field: str | None = None
    probability: Probability = 1.0
    field: str = AUDIO_FIELD


class Speed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="speed"):
    """Audio played faster (above 1) or slower, with its pitch, by one of the factors."""

    factors: list[Factor]
    probability: Probability = 1.0
    field: str = AUDIO_FIELD


class Crop(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="crop"):
    """A stretch of the audio, of `seconds` at most, from anywhere in it."""

    seconds: Seconds
    probability: Probability = 1.0
    field: str = AUDIO_FIELD


class Pad(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="pad"):
    """Audio with zeros at its end, up to `seconds` at least."""

    seconds: Seconds
    probability: Probability = 1.0
    field: str = AUDIO_FIELD


Augment = Gain | Noise | Speed | Crop | Pad


def kind_of(augment: Augment) -> str:
    """Its `type` in the recipe."""
    return str(augment.__struct_config__.tag)
