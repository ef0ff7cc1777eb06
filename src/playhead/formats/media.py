"""Media in a sample: what a format found, before anything is fetched or decoded."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from playhead.store import Extent

MediaKind = Literal["audio", "image"]


class Media(Struct, frozen=True):
    """A recording or image that a row holds (`data`, which may not be read yet) or names (`path`: a path or URL).

    Where both are given, `data` is used.

    `base` is the directory of the file that names it, local or a URL: relative paths begin there.
    Of a recording, `offset` and `duration` are the segment that is wanted, in seconds; without a duration it goes to
    the end. It may end `slack` seconds past the end of the recording, and then ends with it: manifests round.
    `channels` are those of the recording that are wanted, counted from 0; None: all.
    """

    kind: MediaKind
    data: bytes | Extent | None = None
    path: str | None = None
    offset: float = 0.0
    duration: float | None = None
    base: str | None = None
    slack: float = 0.001
    channels: tuple[int, ...] | None = None
