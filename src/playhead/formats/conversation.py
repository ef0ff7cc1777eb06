"""Conversations: turns of text and media, as found by a format or made of a row of audio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from playhead.errors import DataError
from playhead.formats.lengths import MISSING
from playhead.formats.media import DecodedMedia, Media, MediaKind
from playhead.recipe.units import LARGEST_LENGTH
from playhead.recipe.values import AsConversation

CONVERSATION = "conversation"  # the field of a sample that holds one
USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
CONTEXT_TAG, SYSTEM_TAG = "context", "system_prompt"

_MOST_SECONDS = LARGEST_LENGTH // 1000
_ROLES = {
    **dict.fromkeys(["user", "human"], USER),
    **dict.fromkeys(["assistant", "gpt", "model", "bot"], ASSISTANT),
    **{name: name for name in (SYSTEM, "developer", "tool")},
}


class MediaPart(Struct, frozen=True):
    """A medium in a turn. `seconds` is the length that the row declares; None: the header of the medium has it."""

    media: Media | DecodedMedia
    seconds: float | None = None

    @property
    def kind(self) -> MediaKind:
        return self.media.kind


Part = str | MediaPart


class Turn(Struct, frozen=True):
    """What one speaker says: texts and media, in order. `extra` are further keys of its message."""

    role: str
    parts: tuple[Part, ...]
    extra: dict[str, Any] = field(default_factory=dict)


class Conversation(Struct, frozen=True):
    """Turns in order. `tags` are those of the source and of the row; `tools` what a chat template gets as such.

    `placeholders` are the locator tags that stand for media of each kind in a text, as the recipe's template has them.
    """

    id: str
    turns: tuple[Turn, ...]
    tags: dict[str, Any] = field(default_factory=dict)
    tools: list[Any] | None = None
    placeholders: dict[MediaKind, str] = field(default_factory=dict)

    def media(self) -> Iterator[MediaPart]:
        """Its media, in order."""
        return (part for turn in self.turns for part in turn.parts if isinstance(part, MediaPart))

    def text(self, turn: Turn, separator: str = " ") -> str:
        """A turn as a text, with locator tags for its media."""
        return separator.join(part if isinstance(part, str) else self.placeholders[part.kind] for part in turn.parts)

    def with_media(self, made: Iterable[Media | DecodedMedia]) -> Conversation:
        """The conversation with other values for its media, which are given in order."""
        values = iter(made)
        turns = [
            replace(
                turn,
                parts=tuple(
                    MediaPart(next(values), part.seconds) if isinstance(part, MediaPart) else part
                    for part in turn.parts
                ),
            )
            for turn in self.turns
        ]
        return replace(self, turns=tuple(turns))


class MediaInTokens(Struct, frozen=True):
    """The media of one kind in a sample of tokens, in order.

    `positions` are where their first tokens are, `num_tokens` how many tokens stand for each in the plan. Decoded
    recordings have `rates` and a `dtype`. `shape` is that of every image, if the recipe gives them one size and mode.
    """

    media: list[Any]
    positions: list[int]
    num_tokens: list[int]
    rates: list[int] | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.media)


@contextmanager
def naming(conversation_id: str | None) -> Iterator[None]:
    """Errors of a conversation name it, if it has an id."""
    try:
        yield
    except DataError as error:
        if conversation_id:
            error.at(f'conversation "{conversation_id}"')
        raise


def role_of(name: Any) -> str:
    """The role of a speaker, in any of its spellings."""
    found = _ROLES.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise DataError("unknown role", found=repr(name)[:80], expected=f"one of: {', '.join(_ROLES)}")
    return found


def seconds_of(value: Any, what: str) -> float | None:
    """A time in a row; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_SECONDS:
        raise DataError(
            f"{what} is not a valid time", found=repr(value)[:80], expected=f"seconds, from 0 to {_MOST_SECONDS:,}"
        )
    return float(value)


def make_conversation(
    conversation_id: str,
    turns: Iterable[Turn],
    tags: Mapping[str, Any],
    own_tags: Mapping[str, Any],
    *,
    merge: bool = True,
    tools: list[Any] | None = None,
) -> Conversation:
    """A conversation with the context and the system prompt among the tags of its source; `own_tags` are its row's.

    A `context` is a text of the user before audio that begins the conversation; a `system_prompt` comes first, if the
    conversation has no system turn there. Turns of one role in a row are one turn, if `merge` is true.
    """
    given = list(turns)
    if not given:
        raise DataError("has no turns", fix="correct the row, or leave it out")
    context, system_prompt = _tag(tags, CONTEXT_TAG), _tag(tags, SYSTEM_TAG)
    if context is not None and given[0].role == USER and given[0].parts and isinstance(given[0].parts[0], MediaPart):
        given.insert(0, Turn(USER, (context,)))
    if system_prompt is not None and given[0].role != SYSTEM:
        given.insert(0, Turn(SYSTEM, (system_prompt,)))
    return Conversation(conversation_id, tuple(_merged(given) if merge else given), {**own_tags, **tags}, tools)


def _tag(tags: Mapping[str, Any], name: str) -> str | None:
    found = tags.get(name)
    return None if found is None else str(found)


def _merged(turns: list[Turn]) -> Iterator[Turn]:
    for role, group in groupby(turns, key=lambda turn: turn.role):
        members = list(group)
        extra = {key: value for turn in members for key, value in turn.extra.items()}
        yield Turn(role, tuple(part for turn in members for part in turn.parts), extra)


def conversation_of_audio(
    how: AsConversation,
    seconds: Any,
    text_of: Callable[[str], Any],
    audio: Media,
    tags: Mapping[str, Any],
    row_id: str = "",
) -> Conversation:
    """A row of audio as a conversation; `seconds` is what it declares, and `text_of` returns its fields of text.

    Tags of the source replace fields of the row.
    """

    def text(name: str, *, required: bool) -> str | None:
        value = tags[name] if name in tags else text_of(name)
        if (value is MISSING or value is None) and not required:
            return None
        if not isinstance(value, str):
            raise DataError(
                f'as_conversation: field "{name}" holds no text',
                found="no such field" if value is MISSING else repr(value)[:80],
                fix="name the field in `as_conversation`, give a tag of the name, or leave the row out",
            )
        return value

    asked = [text(how.question, required=True)] if how.form == "question" else []
    before = [text(how.system_prompt, required=False), text(how.context, required=False), *asked]
    answer = text(how.answer if how.form == "question" else how.text, required=True)
    turns = [Turn(SYSTEM, (before[0],))] if before[0] is not None else []
    parts = tuple(part for part in before[1:] if part is not None)
    declared = None if seconds is MISSING else seconds_of(seconds, f'"{how.duration}"')
    turns.append(Turn(USER, (*parts, MediaPart(audio, declared))))
    turns.append(Turn(ASSISTANT, (answer or "",)))
    rest = {name: value for name, value in tags.items() if name not in (CONTEXT_TAG, SYSTEM_TAG)}
    return Conversation(row_id, tuple(turns), rest)
