"""The size of a medium from its header alone, for lengths that are computed before anything is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playhead.errors import SampleError
from playhead.formats.conversation import CONVERSATION, Conversation
from playhead.formats.media import Media, MediaKind
from playhead.formats.row_lengths import num_bytes
from playhead.formats.rows import Sample
from playhead.formats.tokens import field_of
from playhead.read.image_headers import image_size
from playhead.read.images import delivered_size
from playhead.read.media_bytes import all_bytes, open_medium
from playhead.read.media_rules import MediaRules
from playhead.read.recordings import open_recording, segment_frames
from playhead.recipe.values import ImageOptions
from playhead.store import Files


def image_size_of(media: Media, files: Files, rules: MediaRules, field: str) -> tuple[int, int]:
    """The width and height of the image that a row holds or names in a field, before any resizing.

    A medium that the rules do not allow, or that is not an image, is a SampleError; a missing file is a DataError.
    """
    return image_size(open_medium(media, files, rules, field))


def audio_seconds_of(media: Media, files: Files, rules: MediaRules, field: str) -> float:
    """The seconds of the segment that a row names in a recording; without a duration it extends to the end.

    Errors are those of `image_size_of`; a segment outside the recording is a SampleError. An MP3 that does not
    declare its length is read completely.
    """
    if media.parts:
        return max(audio_seconds_of(part, files, rules, field) for part in media.parts)
    source = open_medium(media, files, rules, field)
    recording = open_recording(source)
    first, end = segment_frames(source.path, recording, media.offset, media.duration, rules.length_tolerance)
    return (end - first) / recording.rate


@dataclass(frozen=True)
class UndecodedRow:
    """A sample with undecoded media as a row: their headers are read on demand.

    Images have the size at which they are delivered.
    """

    value: Sample
    files: Files
    rules: MediaRules
    image: ImageOptions

    def conversation(self, _tags: Mapping[str, Any]) -> Conversation:
        """The conversation, which the source's tags are already in."""
        found: Conversation = self.value[CONVERSATION]
        return found

    def get(self, field: str) -> Any:
        return field_of(self.value, field)

    def size(self, field: str | None) -> int:
        return num_bytes(None if field is None else self.get(field), field)

    def sample(self) -> Sample:
        return self.value

    def seconds(self, field: str) -> float:
        return audio_seconds_of(self._media(field, "audio"), self.files, self.rules, field)

    def image_size(self, field: str) -> tuple[int, int]:
        size = image_size_of(self._media(field, "image"), self.files, self.rules, field)
        return delivered_size(size, self.image)

    def seconds_of(self, media: Media) -> float:
        return audio_seconds_of(media, self.files, self.rules, CONVERSATION)

    def image_size_of(self, media: Media) -> tuple[int, int]:
        return delivered_size(image_size_of(media, self.files, self.rules, CONVERSATION), self.image)

    def video_bytes_of(self, media: Media) -> bytes:
        return all_bytes(open_medium(media, self.files, self.rules, CONVERSATION), self.rules)

    def _media(self, field: str, kind: MediaKind) -> Media:
        found = self.value.get(field)
        if not isinstance(found, Media) or found.kind != kind:
            raise SampleError(
                f'field "{field}" holds no {kind} to find the length of',
                found=f"fields: {', '.join(map(str, self.value)) or 'none'}",
                fix=f"name the field that holds {kind} in `length`",
            )
        return found
