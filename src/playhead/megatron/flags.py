"""A launch script's arguments -> the values that matter, and the names of those that do not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from playhead.errors import RecipeError
from playhead.megatron.flag_table import ONE, REFUSED, SWITCH, USED, is_harmless

_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?\Z", re.DOTALL)

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Flags:
    """The flags that matter, each with its words, and the names of the ignored ones."""

    words: Mapping[str, tuple[str, ...]]
    ignored: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        assert name in USED
        return name in self.words

    def many(self, name: str) -> list[str] | None:
        assert name in USED
        return list(self.words[name]) if name in self.words else None

    def text(self, name: str, default: str | None = None) -> str | None:
        assert name in USED
        return self.words[name][0] if name in self.words else default

    def integer(self, name: str) -> int | None:
        return self._number(name, int, "a whole number")

    def number(self, name: str) -> float | None:
        return self._number(name, float, "a number")

    def at_least(self, name: str, least: int) -> int | None:
        """A whole number that may not be smaller."""
        found = self.integer(name)
        if found is not None and found < least:
            raise RecipeError(f"--{name} {found}", expected=f"at least {least}", fix="give it as the training job does")
        return found

    def _number(self, name: str, kind: type[T], expected: str) -> T | None:
        word = self.text(name)
        try:
            return None if word is None else kind(word)
        except ValueError as error:
            raise RecipeError(f"--{name} {word}", expected=expected) from error


def parse_flags(words: Sequence[str]) -> Flags:
    """Sort out a command line. Law: nothing is dropped in silence; a name is used, listed as ignored, or refused."""
    used: dict[str, tuple[str, ...]] = {}
    ignored: list[str] = []
    place = 0
    while place < len(words):
        match = _FLAG.match(words[place])
        if match is None:
            raise RecipeError(f'"{words[place]}": belongs to no flag', expected="flags as in the launch script")
        end = place + 1
        while end < len(words) and _FLAG.match(words[end]) is None:
            end += 1
        name = match[1].replace("_", "-")
        values = (*([] if match[2] is None else [match[2]]), *words[place + 1 : end])
        if name in REFUSED:
            raise RecipeError(
                f"--{name}: no cache can be prepared for such a job",
                found=REFUSED[name],
                fix="let the job build its own cache, or run it without this flag",
            )
        if name in USED:
            used[name] = _checked(name, values)
        elif is_harmless(name):
            ignored.append(f"--{name}")
        else:
            raise RecipeError(
                f"--{name}: is not known to be harmless",
                found="a flag that may change the counts or the key of the cache",
                expected="flags of Megatron's GPT training",
                fix="leave it out if it does not change the data; training itself keeps it",
            )
        place = end
    return Flags(used, tuple(dict.fromkeys(ignored)))


def _checked(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    expected = USED[name]
    if (expected == SWITCH and values) or (expected == ONE and len(values) != 1):
        raise RecipeError(f"--{name}: has {len(values)} values", found=" ".join(values) or None, expected=expected)
    return values


def words_of(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments by name, as from YAML or Python, as words of a command line."""
    words: list[str] = []
    for name, value in arguments.items():
        flag = f"--{str(name).replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [flag, *(str(item) for item in value)]
        elif isinstance(value, (str, int, float)):
            words.append(f"{flag}={value}")
        else:
            raise RecipeError(f"{name}: {type(value).__name__}", expected="a text, a number, true or false, or a list")
    return words
