"""How large a medium is, by its header alone: what lengths are made of before anything is decoded."""

from __future__ import annotations

from playhead.formats.media import Media
from playhead.read.images import image_size
from playhead.read.media import open_medium, open_recording, segment_frames
from playhead.read.media_rules import MediaRules
from playhead.store import Files


def image_size_of(media: Media, files: Files, rules: MediaRules, field: str) -> tuple[int, int]:
    """The width and height of the image that a row holds or names in a field, before any resizing.

    What the rules do not allow, and what is no image, is a SampleError; a file that is missing is a DataError.
    """
    return image_size(open_medium(media, files, rules, field))


def audio_seconds_of(media: Media, files: Files, rules: MediaRules, field: str) -> float:
    """The seconds of the segment that a row wants of a recording; without a duration it goes to the end.

    Errors are those of `image_size_of`; a segment outside the recording is a SampleError. An MP3 is read whole.
    """
    source = open_medium(media, files, rules, field)
    recording = open_recording(source)
    first, end = segment_frames(source.path, recording, media.offset, media.duration, media.slack)
    return (end - first) / recording.rate
