"""Conversations of samples: made of rows of audio, and turned into tokens with their media beside them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from playhead.errors import DataError, SampleError
from playhead.formats.chat import Chat, ChatSpec, ChatTokens
from playhead.formats.collect import OWN_ID
from playhead.formats.conversation import CONVERSATION, Conversation, MediaInTokens, conversation_of_audio
from playhead.formats.media import DecodedMedia, Media, MediaKind
from playhead.formats.rows import Sample
from playhead.formats.tokens import field_of
from playhead.read.headers import UndecodedRow
from playhead.recipe.values import AsConversation, ImageOptions

TOKENS, LOSS_MASK, TAGS = "tokens", "loss_mask", "tags"
_CHANNELS: dict[str, tuple[int, ...]] = {"L": (), "RGB": (3,), "RGBA": (4,)}
_IDS = (OWN_ID, "__key__", "audio_filepath")


def audio_as_conversation(how: AsConversation, sample: Sample, tags: Mapping[str, Any], place: str) -> Sample:
    """The sample of a conversation in place of a row of audio, whose media are not decoded yet."""
    audio = sample.get(how.audio)
    if not isinstance(audio, Media):
        held = [value for value in sample.values() if isinstance(value, Media) and value.kind == "audio"]
        if how.audio in sample or len(held) != 1:
            raise DataError(
                f'as_conversation: field "{how.audio}" holds no audio',
                found=f"fields: {', '.join(map(str, sample)) or 'none'}",
                fix="name the field of the audio: `as_conversation: {audio: ...}`",
            )
        audio = held[0]
    found = next((sample[name] for name in _IDS if sample.get(name) not in (None, "")), place)
    text_of = partial(field_of, sample)
    made = conversation_of_audio(how, text_of(how.duration), text_of, audio, tags, str(found))
    return {OWN_ID: made.id, CONVERSATION: made}


class SampleChat:
    """Turns the conversations of samples into tokens, a loss mask, and media with their places.

    `audio_dtype` is None where media are not decoded. Law: the number of tokens depends on the row alone, so it is the
    length in the plan.
    """

    def __init__(
        self, spec: ChatSpec, digests: Mapping[str, str], headers: UndecodedRow, audio_dtype: str | None
    ) -> None:
        self._chat = Chat(spec, digests)
        self._kinds = list(spec.template.media_tags)
        self._sizes = _Sizes(headers)
        self._audio_dtype = audio_dtype
        self._image_shape = None if audio_dtype is None else _shape_of(headers.image)

    def run(self, samples: list[Sample]) -> tuple[list[Sample], SampleError | None]:
        """The samples in tokens, up to the first that fails, and its error."""
        try:
            found = self._chat.tokenized([sample[CONVERSATION] for sample in samples], self._sizes)
        except (DataError, SampleError) as error:
            if len(samples) == 1:
                return [], SampleError(error.problem, found=error.found, expected=error.expected, fix=error.fix)
            done: list[Sample] = []
            for sample in samples:
                made, problem = self.run([sample])
                if problem is not None:
                    return done, problem
                done += made
            return done, None
        return [self._sample(sample, tokens) for sample, tokens in zip(samples, found, strict=True)], None

    def _sample(self, sample: Sample, found: ChatTokens) -> Sample:
        conversation: Conversation = sample[CONVERSATION]
        made = {name: value for name, value in sample.items() if name != CONVERSATION}
        made |= {OWN_ID: conversation.id, TAGS: conversation.tags, TOKENS: found.tokens, LOSS_MASK: found.loss_mask}
        for kind in self._kinds:
            made[kind] = self._media(kind, conversation, found)
        return made

    def _media(self, kind: MediaKind, conversation: Conversation, found: ChatTokens) -> MediaInTokens:
        chosen = [i for i, other in enumerate(found.kinds) if other == kind]
        media = [part.media for part in conversation.media()]
        decoded = [media[i] for i in chosen]
        values = [each.value if isinstance(each, DecodedMedia) else each for each in decoded]
        rates = [each.rate or 0 for each in decoded if isinstance(each, DecodedMedia)] if kind == "audio" else None
        places = [found.positions[i] for i in chosen], [found.num_tokens[i] for i in chosen]
        dtype = self._audio_dtype if kind == "audio" else None
        return MediaInTokens(values, *places, rates, dtype, self._image_shape if kind == "image" else None)


def _shape_of(image: ImageOptions) -> tuple[int, ...] | None:
    """The shape of every decoded image; None where it depends on the file."""
    if image.size is None or image.mode is None:
        return None
    width, height = image.size
    return (height, width, *_CHANNELS[image.mode])


class _Sizes:
    """The sizes of media that are decoded; headers are read of those that are not."""

    def __init__(self, headers: UndecodedRow) -> None:
        self._headers = headers

    def seconds_of(self, media: Media | DecodedMedia) -> float:
        if isinstance(media, Media):
            return self._headers.seconds_of(media)
        assert media.seconds is not None
        return media.seconds

    def image_size_of(self, media: Media | DecodedMedia) -> tuple[int, int]:
        if isinstance(media, Media):
            return self._headers.image_size_of(media)
        height, width = media.value.shape[:2]
        return int(width), int(height)

    def video_bytes_of(self, media: Media | DecodedMedia) -> bytes:
        if isinstance(media, Media):
            return self._headers.video_bytes_of(media)
        assert media.data is not None
        return media.data
