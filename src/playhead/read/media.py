"""The media of samples: fetched for a whole micro-batch at once, and decoded by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from playhead.errors import DataError, PlayheadError, RecipeError, SampleError, StoreError
from playhead.formats.conversation import CONVERSATION, Conversation
from playhead.formats.media import DecodedMedia, Media, MediaKind
from playhead.formats.rows import Sample
from playhead.read.decode_threads import NO_THREADS, DecodeThreads
from playhead.read.images import decode_image
from playhead.read.media_bytes import MediaBytes, open_media, open_medium
from playhead.read.media_rules import MediaRules
from playhead.read.recordings import SECONDS, decode_recording, fetch_recording, joined_parts
from playhead.read.videos import BYTES, decode_video
from playhead.recipe.values import AudioOptions, ImageOptions
from playhead.store import Files, ask_together, requests_cost

_AUDIO_AS_IT_IS = AudioOptions()
_IMAGES_AS_THEY_ARE = ImageOptions()

# What several samples need from one medium: for each the resulting fields, or the error. Fields are named by the suffix
# that is added to the name of the medium's field.
_Decoder = Callable[[MediaBytes, Sequence[Media], MediaRules, Any], list[dict[str, Any] | SampleError]]

MediaKey = tuple[str, MediaKind, bool]  # the path, the kind, and whether it is no part of another medium
# Media that were read ahead of their decoding, with all that is needed of them; or the error of the storage.
FetchedMedia = Mapping[MediaKey, MediaBytes | StoreError | DataError]
NOTHING_FETCHED: FetchedMedia = MappingProxyType({})

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
    fetched: FetchedMedia = NOTHING_FETCHED,
    threads: DecodeThreads = NO_THREADS,
) -> tuple[list[Sample], SampleError | DataError | None]:
    """The samples with their media fetched and decoded, up to the first that fails, and its error.

    Media become arrays (recordings.py, images.py), audio with `<field>_rate` beside it. One that is not read yet, or is
    only bytes, is a StoredArray.
    Law: each file costs one stamp, one read of its header and at most one more for all that is wanted of it; where
    requests take a round trip, those of many files are in flight together. What fails in the storage is raised.
    What was `fetched` of these samples is not requested again.
    """
    wanted = _wanted(samples)
    if not wanted:
        return samples, None
    found = _Decoding(files, rules, {"audio": audio, "image": image, "video": video}, fetched, threads).all(wanted)
    done: list[Sample] = []
    for number, sample in enumerate(samples):
        made: Sample = {}
        decoded: dict[str, dict[str, Any]] = {}
        for field, value in media_of(sample):
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


def fetch_media(samples: list[Sample], files: Files, rules: MediaRules) -> FetchedMedia:
    """Read what `decode_media` will need of the files that these samples name, where requests take a round trip."""
    named, _ = _by_path([each for each in _wanted(samples) if each.media.data is None], rules)
    keys = [key for key in named if requests_cost(files, key[0])]

    def fetch(i: int) -> MediaBytes | StoreError | DataError:
        group = named[keys[i]]
        try:
            source = open_media(files, keys[i][0], whole=_is_whole(group), keeps=True)
            with suppress(SampleError, RecipeError):  # decoding finds them again, and knows whose they are
                if keys[i][1] == "audio":
                    fetch_recording(source, [each.media for each in group], rules)
                elif source.size <= rules.max_bytes:
                    source.read(0, source.size)
        except (StoreError, DataError) as error:
            return error
        return source

    return dict(zip(keys, ask_together(files, [path for path, *_ in keys], fetch), strict=True))


def _wanted(samples: list[Sample]) -> list[_Wanted]:
    return [
        _Wanted(number, field, part, media)
        for number, sample in enumerate(samples)
        for field, value in media_of(sample)
        for part, media in (enumerate(value.parts) if value.parts else [(None, value)])
    ]


def _by_path(
    wanted: Sequence[_Wanted], rules: MediaRules
) -> tuple[dict[MediaKey, list[_Wanted]], dict[tuple[int, str, int | None], SampleError]]:
    """What is wanted of each file, and the errors of media that the rules do not allow."""
    named: dict[MediaKey, list[_Wanted]] = {}
    refused: dict[tuple[int, str, int | None], SampleError] = {}
    for each in wanted:
        try:
            named.setdefault((rules.resolve(each.media), each.media.kind, each.part is None), []).append(each)
        except SampleError as error:
            refused[each.key] = error
    return named, refused


def _is_whole(group: Sequence[_Wanted]) -> bool:
    return any(each.media.duration is None for each in group)


def media_of(sample: Sample) -> Iterator[tuple[str, Media]]:
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
    fetched: FetchedMedia
    threads: DecodeThreads

    def all(self, wanted: Sequence[_Wanted]) -> _Found:
        """What was decoded of each medium: those that take no round trip by the threads for decoding."""
        found: _Found = {}
        named, refused = _by_path([each for each in wanted if each.media.data is None], self.rules)
        found.update(refused)
        present: list[Callable[[], None]] = [
            partial(self._decode_held, each, found) for each in wanted if each.media.data is not None
        ]
        requested: list[Callable[[], None]] = []
        paths: list[str] = []
        for key, group in named.items():
            decode = partial(self._decode_named, key, group, found)
            if key in self.fetched or not requests_cost(self.files, key[0]):
                present.append(decode)
            else:
                requested.append(decode)
                paths.append(key[0])
        self.threads.call(present)
        ask_together(self.files, paths, lambda i: requested[i]())
        return found

    def _decode_held(self, each: _Wanted, found: _Found) -> None:
        self._decode(open_medium(each.media, self.files, self.rules, each.field), [each], found)

    def _decode_named(self, key: MediaKey, group: Sequence[_Wanted], found: _Found) -> None:
        try:
            self._decode(self._opened(key, group), group, found)
        except DataError as error:
            found.update({each.key: error for each in group})

    def _opened(self, key: MediaKey, group: Sequence[_Wanted]) -> MediaBytes:
        source = self.fetched.get(key)
        if source is None:
            return open_media(self.files, key[0], whole=_is_whole(group))
        if isinstance(source, PlayheadError):
            raise source
        return source

    def _decode(self, source: MediaBytes, group: Sequence[_Wanted], found: _Found) -> None:
        """Decode the parts of one medium that a group needs."""
        kind = group[0].media.kind
        how = self.options[kind] if group[0].part is None else _AUDIO_AS_IT_IS
        decoded = DECODERS[kind](source, [each.media for each in group], self.rules, how)
        found.update({each.key: made for each, made in zip(group, decoded, strict=True)})
