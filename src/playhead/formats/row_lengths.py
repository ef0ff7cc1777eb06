"""The lengths of rows, one by one: of a field, a text, a medium, or a sum of them.

A scan sees no media. A length that takes the header of one is UNKNOWN there, and `prepare` reads it later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from playhead.errors import DataError, SampleError
from playhead.formats.chat import Chat, ChatSpec, MediaSizes
from playhead.formats.conversation import Conversation
from playhead.formats.lengths import (
    MISSING,
    UNKNOWN,
    added,
    num_patches,
    planned_seconds,
    whole_number,
)
from playhead.formats.rows import Sample
from playhead.formats.tokens import Tokens
from playhead.recipe.augments import Augment
from playhead.recipe.imports import resolve_function
from playhead.recipe.units import LARGEST_LENGTH
from playhead.recipe.values import Length
from playhead.types import LengthArray


class Row(Protocol):
    """A row as a scan sees it. If a text may look like a number, it also has `text`, which returns it unchanged.

    If its media can be read, it has `seconds` and `image_size` of a field.
    """

    def get(self, field: str) -> Any: ...

    def size(self, field: str | None) -> int: ...

    def sample(self) -> Sample: ...


Place = str | Callable[[], str]  # where a row is, for messages; a function where finding it takes time


class RowLengths:
    """Takes rows, then returns their lengths. Tokens are counted for many rows at once, when all are added; so a row
    that may be refused only then comes with its place.

    `changes` are the augmentations that change the length of audio: the plan uses the length after them. For rows that
    are `delivered`, audio is measured as it is. `tokenizers` are digests by path; `chat` is how conversations become
    tokens.
    """

    def __init__(
        self,
        length: Length,
        changes: Sequence[Augment],
        tokenizers: Mapping[str, str],
        chat: ChatSpec | None = None,
        *,
        delivered: bool = False,
    ) -> None:
        changes = [change for change in changes if length.audio in (None, change.field)]
        self._length = length
        self._terms = [RowLengths(term, changes, tokenizers, delivered=delivered) for term in length.sum]
        self._tokens = None if length.tokenizer is None else Tokens(length, tokenizers)
        self._found: list[Any] = []
        self._chat = None if length.turns is None or chat is None else Chat(chat, tokenizers)
        if self._chat is not None:
            return
        if self._tokens is not None:
            self._read: Callable[[Row], Any] = self._text
        elif length.in_seconds and length.function is None and not length.measure:
            self._read = _seconds_reader(length, changes, delivered=delivered)
        elif not length.sum:
            self._read = _reader(length)

    def add(self, row: Row, place: Place | None = None) -> None:
        for term in self._terms:
            term.add(row)
        if self._chat is not None:
            self._found.append((self._chat.conversation(row), _sizes(row), place))
        elif not self._terms:
            self._found.append(self._read(row))

    def take(self) -> LengthArray:
        """The lengths of the rows added since the last time."""
        if self._terms:
            total = added([term.take() for term in self._terms])
            if total is None:
                raise DataError(
                    "the sum of a row's terms is too long", expected=f"at most {LARGEST_LENGTH:,} {self._length.unit}"
                )
            return total
        found, self._found = self._found, []
        if self._chat is not None:
            return self._of_conversations(found)
        return np.array(found, dtype=np.uint32) if self._tokens is None else self._tokens.counts(found)

    def _of_conversations(self, found: Sequence[tuple[Conversation, MediaSizes | None, Place | None]]) -> LengthArray:
        """The lengths of conversations; if one is refused, each is counted again alone, to find its place."""
        assert self._chat is not None
        assert self._length.turns is not None
        turns = self._length.turns
        try:
            return self._chat.counts([each for each, _, _ in found], turns, [sizes for _, sizes, _ in found])
        except (DataError, SampleError):
            for conversation, sizes, place in found:
                try:
                    self._chat.counts([conversation], turns, [sizes])
                except (DataError, SampleError) as error:
                    if place is not None:
                        error.at(place() if callable(place) else place)
                    raise
            raise

    def _text(self, row: Row) -> Any:
        assert self._tokens is not None
        return self._tokens.text(getattr(row, "text", row.get))


def _sizes(row: Row) -> MediaSizes | None:
    """The row itself, if it knows the sizes of its media."""
    return row if hasattr(row, "seconds_of") else None  # type: ignore[return-value]


def num_bytes(value: Any, field: str | None) -> int:
    """The size in bytes of the text or the bytes in a field."""
    if isinstance(value, str):
        return len(value.encode())
    if not isinstance(value, bytes):
        raise DataError(f'field "{field}" has no size in bytes', found=type(value).__name__, expected="text or bytes")
    return len(value)


def characters(value: Any, name: str) -> int:
    """The number of characters of a text."""
    if not isinstance(value, str):
        raise DataError(f'field "{name}" is not a text', found=repr(value)[:80], expected="a text")
    return len(value)


def _seconds_reader(length: Length, changes: Sequence[Augment], *, delivered: bool) -> Callable[[Row], int]:
    """Seconds of a field and, where a row has none in it, of its audio."""
    field, audio = length.field, length.audio

    def read(row: Row) -> int:
        decoded_seconds = row.seconds(audio) if delivered and audio is not None else None  # type: ignore[attr-defined]
        if decoded_seconds is not None:
            return planned_seconds(decoded_seconds, length, f'field "{audio}"', ())
        value = MISSING if field is None else row.get(field)
        if audio is None or (value is not MISSING and value is not None):
            return planned_seconds(value, length, f'field "{field}"', changes)
        seconds = getattr(row, "seconds", None)
        return UNKNOWN if seconds is None else planned_seconds(seconds(audio), length, f'field "{audio}"', changes)

    return read


def _reader(length: Length) -> Callable[[Row], int]:
    if length.function is not None:
        return _by_function(length.function, length)
    field = length.image or length.field
    if length.unit == "bytes":
        return lambda row: whole_number(row.size(field), "bytes", "the size")
    assert field is not None
    if length.image is not None:
        return lambda row: _patches(row, field, length.patch or 1)
    if length.unit == "characters":
        return lambda row: characters(getattr(row, "text", row.get)(field), field)
    return lambda row: whole_number(row.get(field), length.unit, f'field "{field}"')


def _patches(row: Row, field: str, patch: int) -> int:
    image_size = getattr(row, "image_size", None)
    if image_size is None:
        return UNKNOWN
    width, height = image_size(field)
    return num_patches(width, height, patch)


def _by_function(name: str, length: Length) -> Callable[[Row], int]:
    function = resolve_function(name)

    def read(row: Row) -> int:
        sample = row.sample()
        try:
            value = function(sample)
        except Exception as error:
            raise DataError(
                f"length function {name} failed",
                found=f"{type(error).__name__}: {error}",
                expected="a number for every sample",
            ) from error
        return whole_number(value, length.unit, f"the result of {name}")

    return read
