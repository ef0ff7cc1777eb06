"""The media of samples: fetched for a whole micro-batch at once, and decoded by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from playhead.errors import DataError, PlayheadError, SampleError
from playhead.formats.conversation import CONVERSATION, Conversation
from playhead.formats.media import DecodedMedia, Media, MediaKind
from playhead.formats.rows import Sample
from playhead.read.images import decode_image
from playhead.read.media_bytes import MediaBytes, open_media, open_medium
from playhead.read.media_rules import MediaRules
from playhead.read.recordings import SECONDS, decode_recording, joined_parts
from playhead.read.videos import BYTES, decode_video
from playhead.recipe.values import AudioOptions, ImageOptions
from playhead.store import Files, ask_together

_AUDIO_AS_IT_IS = AudioOptions()
_IMAGES_AS_THEY_ARE = ImageOptions()

# What several samples need from one medium: for each the resulting fields, or the error. Fields are named by the suffix
# that is added to the name of the medium's field.
_Decoder = Callable[[MediaBytes, Sequence[Media], MediaRules, Any], list[dict[str, Any] | SampleError]]

DECODERS: dict[MediaKind, _Decoder] = {"audio": decode_recording, "image": decode_image, "video": decode_video}


class _Wanted(NamedTuple):
    """A medium of a sample, or a part of one; parts are decoded as they are, and then joined."""

    sample: int
    field: str
    part: int | None
    media: Media

    @property
    def key(self) -> tuple[int, str, int | None]:
        return self.sample, self.field, self.part


def decode_media(
    samples: list[Sample],
    files: Files,
    rules: MediaRules,
    audio: AudioOptions = _AUDIO_AS_IT_IS,
    image: ImageOptions = _IMAGES_AS_THEY_ARE,
    video: str | None = None,
) -> tuple[list[Sample], SampleError | DataError | None]:
    """The samples with their media fetched and decoded, up to the first that fails, and its error.

    Media become arrays (recordings.py, images.py), audio with `<field>_rate` beside it. One that is not read yet, or is
    only bytes, is a StoredArray.
    Law: each file costs one stamp, one read of its header and at most one more for all that is wanted of it; where
    requests take a round trip, those of many files are in flight together. What fails in the storage is raised.
    """
    wanted = [
        _Wanted(number, field, part, media)
        for number, sample in enumerate(samples)
        for field, value in _media_of(sample)
        for part, media in (enumerate(value.parts) if value.parts else [(None, value)])
    ]
    if not wanted:
        return samples, None
    found = _Decoding(files, rules, {"audio": audio, "image": image, "video": video}).all(wanted)
    done: list[Sample] = []
    for number, sample in enumerate(samples):
        made: Sample = {}
        decoded: dict[str, dict[str, Any]] = {}
        for field, value in _media_of(sample):
            result = _joined(number, field, value, found, audio) if value.parts else found[number, field, None]
            if isinstance(result, PlayheadError):
                return done, result
            decoded[field] = result
        for field, value in sample.items():
            if type(value) is Conversation:
                made[field] = _with_decoded(value, decoded)
            elif field not in decoded:
                made.setdefault(field, value)  # unless it is the rate of an earlier field
            else:
                made |= {f"{field}{added}": part for added, part in decoded[field].items() if added != SECONDS}
        done.append(made)
    return done, None


def _media_of(sample: Sample) -> Iterator[tuple[str, Media]]:
    """The media of a sample, and those of its conversation, in order; each with a name."""
    for field, value in sample.items():
        if type(value) is Media:
            yield field, value
        elif type(value) is Conversation:
            for i, part in enumerate(value.media()):
                assert isinstance(part.media, Media)
                yield f"{field}[{i}]", part.media


def _with_decoded(conversation: Conversation, decoded: Mapping[str, dict[str, Any]]) -> Conversation:
    return conversation.with_media(
        DecodedMedia(part.kind, found[""], found.get("_rate"), found.get(SECONDS), found.get(BYTES))
        for i, part in enumerate(conversation.media())
        for found in [decoded[f"{CONVERSATION}[{i}]"]]
    )


_Found = dict[tuple[int, str, int | None], dict[str, Any] | SampleError | DataError]


def _joined(
    number: int, field: str, media: Media, found: _Found, how: AudioOptions
) -> dict[str, Any] | SampleError | DataError:
    parts: list[dict[str, Any]] = []
    for part in range(len(media.parts)):
        decoded = found[number, field, part]
        if isinstance(decoded, PlayheadError):
            return decoded
        parts.append(decoded)
    try:
        return joined_parts(parts, media.crop, how)
    except SampleError as error:
        return error


@dataclass(frozen=True)
class _Decoding:
    files: Files
    rules: MediaRules
    options: dict[MediaKind, AudioOptions | ImageOptions | str | None]

    def all(self, wanted: Sequence[_Wanted]) -> _Found:
        found: _Found = {}
        named: dict[tuple[str, MediaKind, bool], list[_Wanted]] = {}
        for each in wanted:
            media = each.media
            if media.data is not None:
                self._decode(open_medium(media, self.files, self.rules, each.field), [each], found)
                continue
            try:
                key = self.rules.resolve(media), media.kind, each.part is None
                named.setdefault(key, []).append(each)
            except SampleError as error:
                found[each.key] = error
        paths, groups = [path for path, *_ in named], list(named.values())

        def fetch(i: int) -> None:
            whole = any(each.media.duration is None for each in groups[i])
            try:
                self._decode(open_media(self.files, paths[i], whole=whole), groups[i], found)
            except DataError as error:
                found.update({each.key: error for each in groups[i]})

        ask_together(self.files, paths, fetch)
        return found

    def _decode(self, source: MediaBytes, group: Sequence[_Wanted], found: _Found) -> None:
        """Decode the parts of one medium that a group needs."""
        kind = group[0].media.kind
        how = self.options[kind] if group[0].part is None else _AUDIO_AS_IT_IS
        decoded = DECODERS[kind](source, [each.media for each in group], self.rules, how)
        found.update({each.key: made for each, made in zip(group, decoded, strict=True)})
