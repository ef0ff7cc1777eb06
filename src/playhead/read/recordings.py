"""Recordings: opened by their first bytes; all requested segments of one are decoded together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from playhead.errors import RecipeError, SampleError
from playhead.formats.media import Media, MediaCrop
from playhead.read.audio import as_wanted, chosen_channels, options_for
from playhead.read.codecs import FLAC_MAGICS, MP3_MAGICS, OTHER_MAGICS, TAG_MAGICS, open_flac, open_other, open_tagged
from playhead.read.media_bytes import MediaBytes
from playhead.read.media_rules import MediaRules, too_large
from playhead.read.stored import StoredArray
from playhead.read.wav import MAGICS, NoDecoderError, Readable, open_wav
from playhead.recipe.values import AudioOptions
from playhead.store import Buffer, Extent
from playhead.types import Array

SECONDS = "_seconds"  # of the segment as it is stored: not a field of samples
_ROUNDING_SECONDS = 0.001  # manifests round to milliseconds, whatever the tolerance of the recipe
_MOST_SECONDS = 1e9
_WITHOUT_DECODER = {b"ftyp": "MP4 or M4A", b"\xff\xf1": "AAC", b"\xff\xf9": "AAC", b"\x1aE\xdf\xa3": "Matroska or WebM"}


class Timed(Protocol):
    """How long a recording is."""

    @property
    def rate(self) -> int: ...

    @property
    def num_frames(self) -> int: ...


class OpenRecording(Timed, Protocol):
    """An opened recording: its header is read, its samples are not. Those of a plain one may stay in their file.

    `floats` makes the frames [first, end) from the bytes of `byte_range`.
    """

    @property
    def channels(self) -> int: ...

    @property
    def is_plain(self) -> bool: ...

    def byte_range(self, first: int, end: int) -> tuple[int, int]: ...

    def floats(self, data: Buffer | Extent, first: int, end: int) -> Array | StoredArray: ...


def _open_riff(source: Readable) -> OpenRecording:
    """PCM by numpy; a WAV file may hold other codecs, too."""
    try:
        return open_wav(source)
    except NoDecoderError as error:
        try:
            return open_other(source)
        except (RecipeError, SampleError):
            raise error from None


# By the bytes that files of a container begin with: names are not trusted.
OPENERS: dict[bytes, Callable[[Readable], OpenRecording]] = {
    **dict.fromkeys(MAGICS, _open_riff),
    **dict.fromkeys(FLAC_MAGICS, open_flac),
    **dict.fromkeys(TAG_MAGICS, open_tagged),
    **dict.fromkeys(MP3_MAGICS + OTHER_MAGICS, open_other),
}


def decode_recording(
    source: MediaBytes, group: Sequence[Media], rules: MediaRules, how: AudioOptions
) -> list[dict[str, Any] | SampleError]:
    """The requested segments of one recording, each with its rate, or the reason why there is none.

    A segment is an array of shape (samples,) or (samples, channels), of float32 from -1 to 1 unless the recipe says
    otherwise; a StoredArray where its numbers need no decoding, and of a local file they are not read yet.
    """
    try:
        recording = open_recording(source)
    except SampleError as error:
        return [error] * len(group)
    frames, found = _all_frames(source.path, recording, group, rules)
    ranges = list(dict.fromkeys(recording.byte_range(*bounds) for bounds in frames.values()))
    unread = source.extents(ranges) if recording.is_plain else None
    parts = dict(zip(ranges, source.ranges(ranges) if unread is None else unread, strict=True)) if ranges else {}
    for i, bounds in frames.items():
        try:
            samples = recording.floats(parts[recording.byte_range(*bounds)], *bounds)
            channels = group[i].channels
            if channels is not None:
                samples = chosen_channels(source.path, samples, channels, "the channels in the row")
            samples, rate = as_wanted(source.path, samples, recording.rate, options_for(group[i], how))
            seconds = (bounds[1] - bounds[0]) / recording.rate
            found[i] = {"": samples, "_rate": rate, SECONDS: seconds}
        except SampleError as error:
            found[i] = error
    return [found[i] for i in range(len(group))]


def fetch_recording(source: MediaBytes, group: Sequence[Media], rules: MediaRules) -> None:
    """Read what `decode_recording` will read of a source that keeps it."""
    recording = open_recording(source)
    frames, _ = _all_frames(source.path, recording, group, rules)
    source.ranges(list(dict.fromkeys(recording.byte_range(*bounds) for bounds in frames.values())))


def _all_frames(
    path: str, recording: OpenRecording, group: Sequence[Media], rules: MediaRules
) -> tuple[dict[int, tuple[int, int]], dict[int, dict[str, Any] | SampleError]]:
    """The frames of each segment by its number in the group, and the errors of those that have none."""
    frames: dict[int, tuple[int, int]] = {}
    refused: dict[int, dict[str, Any] | SampleError] = {}
    for i, media in enumerate(group):
        try:
            frames[i] = _wanted_frames(path, recording, media, rules)
        except SampleError as error:
            refused[i] = error
    return frames, refused


def joined_parts(parts: Sequence[Mapping[str, Any]], crop: MediaCrop | None, how: AudioOptions) -> dict[str, Any]:
    """Several decoded recordings as one: the channels of each follow those of the previous one.

    Shorter ones are padded with silence, as in lhotse; different rates are a SampleError.
    """
    rates = {part["_rate"] for part in parts}
    if len(rates) > 1:
        raise SampleError(
            "the files of a recording differ in their sampling rates",
            found=", ".join(f"{rate:,} Hz" for rate in sorted(rates)),
            expected="one rate",
            fix="resample them, or leave the row out",
        )
    (rate,) = rates
    arrays = [np.asarray(part[""]) for part in parts]
    arrays = [array[:, None] if array.ndim == 1 else array for array in arrays]
    num_frames = max(map(len, arrays))
    samples = np.concatenate([np.pad(array, ((0, num_frames - len(array)), (0, 0))) for array in arrays], axis=1)
    first, end = (0, num_frames) if crop is None else crop.frames(0, num_frames, rate)
    wanted, rate = as_wanted("a recording of several files", samples[first:end], rate, how)
    return {"": wanted, "_rate": rate, SECONDS: max(part[SECONDS] for part in parts)}


def open_recording(source: Readable) -> OpenRecording:
    """A recording opened by the decoder of its magic."""
    head = bytes(source.read(0, 12))
    for magic, opens in OPENERS.items():
        if head.startswith(magic):
            return opens(source)
    name = next((name for magic, name in _WITHOUT_DECODER.items() if magic in head[:8]), None)
    raise NoDecoderError(
        f"{source.path}: unsupported audio format",
        found=f"{name} (it begins with {head[:8]!r})" if name else f"it begins with {head[:12]!r}",
        expected="WAV, FLAC, MP3, Ogg, AIFF, W64, CAF or AU",
        fix="store it as one of these, or set `media: false` and decode it in the map (for example with torchcodec)",
    )


def _wanted_frames(path: str, recording: OpenRecording, media: Media, rules: MediaRules) -> tuple[int, int]:
    """The frames of a segment; one beyond the limits is refused."""
    first, end = segment_frames(path, recording, media.offset, media.duration, rules.length_tolerance)
    if media.crop is not None:
        first, end = media.crop.frames(first, end, recording.rate)
    seconds = (end - first) / recording.rate
    if seconds > rules.max_seconds:
        raise too_large(path, f"{seconds:,.3f} s", f"{rules.max_seconds:,.3f} s at most", "max_seconds")
    low, high = recording.byte_range(first, end)
    decoded = 0 if recording.is_plain else 4 * recording.channels * (recording.num_frames if high else end - first)
    num_bytes = max(high - low, decoded)
    if num_bytes > rules.max_bytes:
        raise too_large(path, f"{num_bytes:,} bytes", f"{rules.max_bytes:,} at most", "max_bytes")
    return first, end


def segment_frames(
    path: str, recording: Timed, offset: float, duration: float | None, tolerance: float = _ROUNDING_SECONDS
) -> tuple[int, int]:
    """The first frame of a segment and the one after its last; one outside the recording is a SampleError.

    A segment may end `tolerance` seconds past the end of the recording, and then ends with it.
    """
    rate, num_frames, tolerance = recording.rate, recording.num_frames, max(tolerance, _ROUNDING_SECONDS)
    if offset == 0 and duration is None:
        return 0, num_frames
    if _is_time(offset) and (duration is None or _is_time(duration)):
        first = round(offset * rate)
        end = num_frames if duration is None else round((offset + duration) * rate)
        if num_frames < end <= num_frames + tolerance * rate:
            end = num_frames
        if first < end <= num_frames:
            return first, end
    until = "to its end" if duration is None else f"of {str(duration)[:20]} s"
    raise SampleError(
        f"{path}: the segment is not within the recording",
        found=f"a segment {until}, starting at {str(offset)[:20]} s",
        expected=f"times up to {num_frames / rate:g} s, which may be passed by {tolerance:g} s",
    )


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 <= seconds <= _MOST_SECONDS
