"""Media in a sample, as found by a format, before anything is fetched or decoded."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from playhead.store import Extent

MediaKind = Literal["audio", "image", "video"]


_ROUNDING_NOISE = 1e-6  # of a frame: 0.29 s at 100 Hz are 28.999999999999996 frames


class MediaCrop(Struct, frozen=True):
    """A stretch of `seconds` at most, whose place is a number from 0 (at the beginning) to 1."""

    seconds: float
    at: float = 0.0

    def num_frames(self, rate: int) -> int:
        return max(1, int(self.seconds * rate + _ROUNDING_NOISE))

    def frames(self, first: int, end: int, rate: int) -> tuple[int, int]:
        """The range of frames to keep out of `first` to `end`."""
        spare = end - first - self.num_frames(rate)
        if spare <= 0:
            return first, end
        begin = first + min(int(self.at * (spare + 1)), spare)
        return begin, begin + self.num_frames(rate)


class Media(Struct, frozen=True):
    """A recording or image that a row holds (`data`, which may not be read yet) or names (`path`: a path or URL).

    Where both are given, `data` is used.

    `base` is the directory of the file that names it, local or a URL: relative paths begin there.
    Of a recording, `offset` and `duration` are the segment that is wanted, in seconds; without a duration it goes to
    the end.
    `channels` are those of the recording that are wanted, counted from 0; None: all. A `crop` keeps a part of the
    segment. A recording whose channels are in several files has a medium for each, its `parts`, and neither bytes nor
    a path of its own. `rate` and `mono`, and the `mode` of an image, say how it is delivered where the recipe does not.
    """

    kind: MediaKind
    data: bytes | Extent | None = None
    path: str | None = None
    offset: float = 0.0
    duration: float | None = None
    base: str | None = None
    channels: tuple[int, ...] | None = None
    crop: MediaCrop | None = None
    parts: tuple[Media, ...] = ()
    rate: int | None = None
    mono: bool = False
    mode: str | None = None


class DecodedMedia(Struct, frozen=True):
    """A decoded medium of a conversation: its values; of a recording the rate and the seconds that were stored, of a
    video its bytes, which a function may count tokens of.
    """

    kind: MediaKind
    value: Any
    rate: int | None = None
    seconds: float | None = None
    data: bytes | None = None
