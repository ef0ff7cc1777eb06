"""What a scan collects for every row, and the rules of `keep`.

A rule on numbers is kept as a column, so that changing a limit costs no new scan; a rule on strings is decided
while scanning and kept as one byte a row, so that no string is stored.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from playhead.errors import RecipeError
from playhead.fingerprint import digest
from playhead.formats.chat import ChatSpec
from playhead.formats.tokens import by_digest, tokenizer_digest
from playhead.recipe.augments import Augment
from playhead.recipe.values import PLANNED_COLUMNS, ImageOptions, KeepRule, Length, Source


class Match(Struct, frozen=True):
    """A rule on a string field: one of a set, or a pattern."""

    name: str
    any_of: tuple[str, ...] = ()
    pattern: str | None = None

    @property
    def column(self) -> str:
        return f"{self.name} matches {digest(self)[:8]}"

    def compile(self) -> Callable[[Any], bool]:
        """The rule as a function. A value that is missing or not a string does not match."""
        if self.pattern is None:
            wanted = frozenset(self.any_of)
            return lambda value: isinstance(value, str) and value in wanted
        if self.pattern.startswith("re:"):
            search = re.compile(self.pattern[3:]).search
        else:
            search = re.compile(fnmatch.translate(self.pattern)).match
        return lambda value: isinstance(value, str) and search(value) is not None


class Range(Struct, frozen=True):
    """A rule on a number, or on a ratio of two: both ends are included, None is open."""

    columns: tuple[str, ...]
    low: float | None
    high: float | None


class Rule(Struct, frozen=True):
    """One entry of `keep`, as the user wrote it and as it is evaluated."""

    key: str
    text: str
    test: Range | Match


class Spec(Struct, frozen=True):
    """What an index holds of every row. `measured` stands for all that decides lengths which are measured.

    `tokenizers` are the digests of the tokenizers that count tokens, by their paths; `audio_changes` the augmentations
    that change how long audio is; `image` how images whose patches are counted are resized; `chat` how conversations
    become tokens.
    """

    length: Length | None = None
    output_length: Length | None = None
    ids: str | None = None
    columns: tuple[str, ...] = ()
    matches: tuple[Match, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    measured: str | None = None
    tokenizers: dict[str, str] = field(default_factory=dict)
    audio_changes: tuple[Augment, ...] = ()
    image: ImageOptions | None = None
    chat: ChatSpec | None = None

    @property
    def scanned(self) -> Spec:
        """What a scan collects itself: lengths that are measured come later."""
        return self if self.measured is None else replace(self, length=None, measured=None)

    @property
    def content(self) -> Spec:
        """What distinguishes the rows of one index from those of another: where a tokenizer is does not."""
        lengths = [by_digest(length, self.tokenizers) for length in (self.length, self.output_length)]
        chat = None if self.chat is None else self.chat.content(self.tokenizers)
        return replace(self, length=lengths[0], output_length=lengths[1], tokenizers={}, chat=chat)

    @property
    def reads_content(self) -> bool:
        """Whether more than the location of each row is needed."""
        return any((self.length, self.output_length, self.ids, self.columns, self.matches))


def spec_of(source: Source, path: str, default_id: str | None, measured: str | None = None) -> Spec:
    """What must be collected of a source; `path` is where it stands in the recipe."""
    rules = rules_of(source, path)
    columns = set(source.columns)
    for rule in rules:
        if isinstance(rule.test, Range):
            columns.update(name for name in rule.test.columns if name not in PLANNED_COLUMNS)
    ids = source.ids or (default_id if source.drop_ids else None)
    if source.drop_ids and ids is None:
        raise RecipeError(
            f'{path}.drop_ids: source "{source.name}" has no ids',
            expected="`ids:`, the field that holds the id of a sample",
            fix=f"add `ids: id` (or whatever the field is called) to {path}",
        )
    tokenizers: dict[str, str] = {}
    for name, length in (("length", source.length), ("output_length", source.output_length)):
        if length is not None:
            for term in length.terms:
                _check_length(term, f"{path}.{name}")
                if term.tokenizer is not None:
                    tokenizers[term.tokenizer] = tokenizer_digest(term.tokenizer, f"{path}.{name}.tokenizer")
    matches = {rule.test.column: rule.test for rule in rules if isinstance(rule.test, Match)}
    return Spec(
        length=source.length,
        output_length=source.output_length,
        ids=ids,
        columns=tuple(sorted(columns)),
        matches=tuple(matches[name] for name in sorted(matches)),
        options=source.options,
        measured=measured,
        tokenizers=tokenizers,
    )


def rules_of(source: Source, path: str) -> tuple[Rule, ...]:
    """The rules of `keep` in the order they were written."""
    return tuple(_rule(key, rule, f"{path}.keep.{key}") for key, rule in source.keep.items())


def _rule(key: str, rule: KeepRule, where: str) -> Rule:
    if isinstance(rule, str):
        match = Match(key, pattern=rule)
        try:
            match.compile()
        except re.error as error:
            raise RecipeError(f"{where}: not a regular expression", found=f"{rule}: {error}") from error
        return Rule(key, rule, match)
    if rule and all(isinstance(item, str) for item in rule):
        wanted = tuple(sorted({str(item) for item in rule}))
        return Rule(key, f"one of {', '.join(wanted)}", Match(key, any_of=wanted))
    ends = [None if end is None else float(end) for end in rule if not isinstance(end, (str, bool))]
    if len(rule) != 2 or len(ends) != 2 or ends == [None, None]:
        raise RecipeError(
            f"{where}: not a rule",
            found=str(rule),
            expected="a range [low, high] (null for an open end), a list of strings, or a pattern",
        )
    low, high = ends
    if low is not None and high is not None and low > high:
        raise RecipeError(f"{where}: the range is empty", found=f"low {low:g} above high {high:g}")
    columns = tuple(part.strip() for part in key.split("/", 1)) if "/" in key else (key,)
    text = f"{'' if low is None else f'{low:g}'}..{'' if high is None else f'{high:g}'}"
    return Rule(key, text, Range(columns, low, high))


def _check_length(length: Length, where: str) -> None:
    if length.field and length.function:
        raise RecipeError(f"{where}: has both `field` and `function`", fix="keep one of them")
    given = length.field or length.function or length.measure or length.tokenizer or length.audio or length.image
    given = given or length.turns
    if not given and length.unit != "bytes":
        raise RecipeError(
            f"{where}: has neither `field` nor `function`",
            fix="name the field that holds the length, or use `unit: bytes` for the size of the sample",
        )
