"""The tokens of conversations: their number, for lengths, and the tokens with a loss mask and the places of media.

Law: a length is the number of tokens delivered, where placeholders are expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError, RecipeError
from playhead.formats.chat_template import Message, Rendered, Span, TemplateText, last_turn, read_template, render
from playhead.formats.conversation import Conversation, MediaPart, conversation_of_audio, naming
from playhead.formats.lengths import UNKNOWN, num_patches, whole_number
from playhead.formats.media import Media, MediaKind
from playhead.formats.tokens import tokenizer_of
from playhead.recipe.imports import resolve_function, source_digest
from playhead.recipe.units import LARGEST_LENGTH
from playhead.recipe.values import AsConversation, Template, Turns, VisualTokens
from playhead.types import Array, BoolArray, IntArray, LengthArray


class ChatSpec(Struct, frozen=True):
    """All that decides the tokens of a source's conversations, and how its rows become conversations.

    `code` is a digest of the module of a template that is a function; `messages` the column that holds conversations.
    """

    template: Template
    text: TemplateText | None = None
    code: str | None = None
    as_conversation: AsConversation | None = None
    tags: dict[str, Any] = {}
    messages: str | None = None

    @property
    def fields(self) -> list[str]:
        """The fields that a scan of columns needs."""
        if self.as_conversation is None:
            return [self.messages or "", "id", "tools", "custom", "_skipme"]
        how = self.as_conversation
        asked = [how.question, how.answer] if how.form == "question" else [how.text]
        return [how.system_prompt, how.context, *asked, how.duration]

    def content(self, tokenizers: Mapping[str, str]) -> ChatSpec:
        """The same without paths: files may move."""
        digest = tokenizers[self.template.tokenizer]
        return replace(self, template=replace(self.template, tokenizer=digest, file=None))


def chat_spec(template: Template, how: AsConversation | None, tags: Mapping[str, Any], where: str) -> ChatSpec:
    """The template with the text of its file; `where` is its place in the recipe."""
    if template.file is not None:
        text = read_template(template.file, template.variables, f"{where}.file")
        return ChatSpec(template, text, None, how, dict(tags))
    assert template.function is not None
    code = source_digest(template.function, f"{where}.function")
    return ChatSpec(template, None, code, how, dict(tags))


class MediaSizes(Protocol):
    """The sizes of media, for numbers of tokens that a row does not declare."""

    def seconds_of(self, media: Media) -> float: ...

    def image_size_of(self, media: Media) -> tuple[int, int]: ...

    def video_bytes_of(self, media: Media) -> bytes: ...


class ChatTokens(NamedTuple):
    """A conversation in tokens: which are trained on, and of each medium its kind, place and number of tokens."""

    tokens: IntArray
    loss_mask: BoolArray
    kinds: list[MediaKind]
    positions: list[int]
    num_tokens: list[int]


class _Encoded(NamedTuple):
    """Tokens with each placeholder once; `last` is the first token of the last turn, where it was asked for."""

    tokens: IntArray
    trained: BoolArray
    last: int


class Chat:
    """Makes tokens of conversations. The tokenizer and the template are loaded when they are first used."""

    def __init__(self, spec: ChatSpec, digests: Mapping[str, str]) -> None:
        self.spec, self._template = spec, spec.template
        self._digest = digests[spec.template.tokenizer]

    def conversation(self, row: Any) -> Conversation:
        """The conversation of a row, as a scan sees it; a row whose media can be read holds it already."""
        how = self.spec.as_conversation
        if how is None or hasattr(row, "seconds_of"):
            found: Conversation = row.conversation(self.spec.tags)
            return found
        text_of = getattr(row, "text", row.get)
        return conversation_of_audio(how, row.get(how.duration), text_of, Media("audio"), self.spec.tags)

    def counts(
        self, conversations: Sequence[Conversation], turns: Turns, sizes: Sequence[MediaSizes | None]
    ) -> LengthArray:
        """The lengths of conversations; UNKNOWN where the header of a medium must be read and there is none."""
        encoded = self._encode(conversations, with_last=turns != "all")
        found = np.empty(len(conversations), np.uint32)
        for i, (conversation, each) in enumerate(zip(conversations, encoded, strict=True)):
            with naming(conversation.id):
                found[i] = self._count(conversation, each, turns, sizes[i])
        return found

    def _count(self, conversation: Conversation, encoded: _Encoded, turns: Turns, sizes: MediaSizes | None) -> int:
        first = encoded.last if turns == "output" else 0
        end = encoded.last if turns == "input" else len(encoded.tokens)
        places = self._places(conversation, encoded.tokens).tolist()
        counted = [
            self._num_tokens(part, sizes)
            for part, place in zip(conversation.media(), places, strict=True)
            if first <= place < end
        ]
        if None in counted and turns == "output":
            raise _undeclared()
        length = end - first + sum(number - 1 for number in counted if number is not None)
        if length > LARGEST_LENGTH:
            raise DataError("is too long", found=f"{length:,} tokens")
        return UNKNOWN if None in counted else length

    def tokenized(self, conversations: Sequence[Conversation], sizes: MediaSizes) -> list[ChatTokens]:
        """The tokens to deliver; media are decoded, or their headers are read."""
        found = []
        for conversation, each in zip(conversations, self._encode(conversations), strict=True):
            with naming(conversation.id):
                found.append(self._delivered(conversation, each, sizes))
        return found

    def _delivered(self, conversation: Conversation, encoded: _Encoded, sizes: MediaSizes) -> ChatTokens:
        media = list(conversation.media())
        places = self._places(conversation, encoded.tokens)
        numbers = [self._num_tokens(part, sizes) or 1 for part in media]
        repeats = np.ones(len(encoded.tokens), np.int64)
        trained = encoded.trained.copy()
        trained[places] = False  # a placeholder stands for media: it is never a target
        if self._template.expand_placeholders:
            repeats[places] = numbers
        starts = np.cumsum(repeats) - repeats
        kinds = [part.kind for part in media]
        return ChatTokens(
            np.repeat(encoded.tokens, repeats), np.repeat(trained, repeats), kinds, starts[places].tolist(), numbers
        )

    def _encode(self, conversations: Sequence[Conversation], *, with_last: bool = False) -> list[_Encoded]:
        if self.spec.text is None:
            return [self._by_function(conversation) for conversation in conversations]
        texts: list[str] = []
        marks: list[tuple[list[Span], int]] = []
        for conversation in conversations:
            with naming(conversation.id):
                messages = self._messages(conversation)
                found: Rendered = render(self.spec.text, messages, conversation.tools)
                last = last_turn(self.spec.text, messages, conversation.tools, found) if with_last else 0
                _check_unicode(found.text)
            texts.append(found.text)
            marks.append((found.trained, last))
        encoded = self._model.encode_batch(texts, add_special_tokens=False) if texts else []
        return [
            _encoded(np.array(each.ids, np.int64), np.array(each.offsets, np.int64).reshape(-1, 2), *marked)
            for each, marked in zip(encoded, marks, strict=True)
        ]

    def _messages(self, conversation: Conversation) -> list[Message]:
        """Messages as a chat template gets them."""
        conversation = self._with_placeholders(conversation)
        messages = []
        for turn in conversation.turns:
            content: Any = conversation.text(turn, self._template.separator)
            if self._template.content == "parts":
                content = [
                    {"type": "text", "text": part} if isinstance(part, str) else {"type": part.kind}
                    for part in turn.parts
                ]
            messages.append({**turn.extra, "role": turn.role, "content": content})
        return messages

    def _with_placeholders(self, conversation: Conversation) -> Conversation:
        """The conversation with its locator tags; one that a text holds, or that is not given, is refused."""
        tags = self._template.media_tags
        for kind in {part.kind for part in conversation.media()} - tags.keys():
            raise DataError(
                f"holds media of the kind {kind}, and the template has no tag for it",
                fix=f"give `template: {{{kind}: {{tag: ...}}}}`, or leave the row out",
            )
        for turn in conversation.turns:
            for part in turn.parts:
                found = [tag for tag in tags.values() if isinstance(part, str) and tag in part]
                if found:
                    raise DataError(
                        f'a text of the {turn.role} holds the placeholder "{found[0]}", for which there is no medium',
                        found=repr(part)[:120],
                        fix="correct the row, leave it out, or give another `tag` in the recipe's template",
                    )
        return replace(conversation, placeholders=tags)

    def _by_function(self, conversation: Conversation) -> _Encoded:
        """Tokens of the pairs that the user's function returns; each text is tokenized on its own."""
        name = self._template.function or ""
        with naming(conversation.id):
            given = self._with_placeholders(conversation)
            try:
                pairs = list(self._function(given))
            except Exception as error:
                raise DataError(f"the template {name} failed", found=f"{type(error).__name__}: {error}") from error
            pieces = [(self._piece(text, name), bool(trained)) for text, trained in map(_pair, pairs)]
        tokens = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in pieces)])
        trained = np.concatenate([np.empty(0, np.bool_), *(np.full(len(ids), loss) for ids, loss in pieces)])
        last = len(tokens) - (len(pieces[-1][0]) if pieces else 0)
        return _Encoded(tokens, trained, last)

    @cached_property
    def _function(self) -> Callable[[Conversation], Any]:
        found: Callable[[Conversation], Any] = resolve_function(self._template.function or "")
        return found

    def _piece(self, text: Any, name: str) -> IntArray:
        if isinstance(text, str):
            _check_unicode(text)
            return np.array(self._model.encode(text, add_special_tokens=False).ids, np.int64)
        ids = np.asarray(text)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DataError(
                f"the template {name} returned neither a text nor tokens",
                found=repr(text)[:80],
                expected="pairs of a text, or a list of tokens, and whether it is trained on",
            )
        return ids.astype(np.int64)

    @cached_property
    def _model(self) -> Any:
        model = tokenizer_of(self._template.tokenizer, self._digest)
        for kind, tag in self._template.media_tags.items():
            ids = model.encode(f"a{tag}b", add_special_tokens=False).ids
            if ids.count(model.token_to_id(tag)) != 1:
                raise RecipeError(
                    f'template.{kind}.tag: "{tag}" is not one token of the tokenizer',
                    found=f"{model.encode(tag, add_special_tokens=False).tokens} in {self._template.tokenizer}",
                    fix="add it to the tokenizer as a special token, or name the tag that the tokenizer has",
                )
        return model

    def _places(self, conversation: Conversation, tokens: IntArray) -> Array:
        """Where the placeholders are. Law: one for each medium, in order."""
        media = [part.kind for part in conversation.media()]
        ids = {int(self._model.token_to_id(tag)): kind for kind, tag in self._template.media_tags.items()}
        places = np.flatnonzero(np.isin(tokens, list(ids)))
        found = [ids[int(token)] for token in tokens[places]]
        if found != media:
            raise DataError(
                "the template does not write one placeholder for each medium",
                found=f"placeholders: {', '.join(found) or 'none'}",
                expected=f"media in order: {', '.join(media) or 'none'}",
                fix="name the tags that the template writes, or set `content: parts` for a template that writes them",
            )
        return places

    def _num_tokens(self, part: MediaPart, sizes: MediaSizes | None) -> int | None:
        """How many tokens a medium has; None if its header is needed to know."""
        template = self._template
        if part.kind != "audio":
            how = template.image if part.kind == "image" else template.video
            assert how is not None
            return _visual_tokens(how, part, sizes)
        assert template.audio is not None
        seconds = part.seconds
        if seconds is None:
            if sizes is None:
                return None
            seconds = sizes.seconds_of(part.media)  # type: ignore[arg-type]
        whole_number(seconds, "seconds", "the duration of the audio")
        return max(1, ceil(seconds / template.audio.token_equivalent_duration))


def _undeclared() -> DataError:
    return DataError(
        "media of the last turn need a length in the row, if the lengths of outputs are planned",
        fix='write the "duration" of its audio, or give images a number of `tokens` in the template',
    )


def _visual_tokens(how: VisualTokens, part: MediaPart, sizes: MediaSizes | None) -> int | None:
    if how.tokens is not None:
        return how.tokens
    if sizes is None:
        return None
    if how.patch is not None:
        return max(1, num_patches(*sizes.image_size_of(part.media), how.patch))  # type: ignore[arg-type]
    function = resolve_function(how.function or "")
    given: tuple[Any, ...] = (
        sizes.image_size_of(part.media) if part.kind == "image" else (sizes.video_bytes_of(part.media),)  # type: ignore[arg-type]
    )
    try:
        value = function(*given)
    except Exception as error:
        raise DataError(f"{how.function} failed", found=f"{type(error).__name__}: {error}") from error
    return max(1, whole_number(value, "tokens", f"the result of {how.function}"))


def _encoded(tokens: IntArray, offsets: Array, trained: list[Span], last: int) -> _Encoded:
    """Tokens that overlap a span are trained on; the last turn begins with the first token that reaches into it."""
    mask = np.zeros(len(tokens), np.bool_)
    firsts, ends = offsets[:, 0], offsets[:, 1]
    for first, end in trained:
        mask |= (firsts < end) & (ends > first)
    after = np.flatnonzero(ends > last)
    return _Encoded(tokens, mask, int(after[0]) if len(after) else len(tokens))


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DataError(
            "the template function did not return pairs",
            found=repr(given)[:80],
            expected="pairs of a text, or a list of tokens, and whether it is trained on",
        )
    return given[0], given[1]


def _check_unicode(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError("a text is not valid Unicode", found=str(error)[:120]) from error
