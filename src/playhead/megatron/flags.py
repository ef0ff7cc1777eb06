"""A launch script's arguments -> the values that matter, and the names of those that do not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from playhead.errors import RecipeError
from playhead.megatron.flag_table import LAUNCHER, REFUSED, TAKEN, flags_of, releases_with
from playhead.megatron.job import LARGEST_COUNT
from playhead.megatron.releases import RELEASES

_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?\Z", re.DOTALL)
_VALUES = {
    "0": "no value",
    "1": "one value",
    "3": "three values",
    "*": "any number of values",
    "+": "one or more values",
}

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Flags:
    """The flags that matter, each with its words, and the names of the ignored ones.

    A value that was not given is the default of the release.
    """

    release: str
    words: Mapping[str, tuple[str, ...]]
    ignored: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a flag was given."""
        assert name in TAKEN
        return name in self.words

    def many(self, name: str) -> list[str] | None:
        assert name in TAKEN
        return list(self.words[name]) if name in self.words else None

    def text(self, name: str, default: str | None = None) -> str | None:
        assert name in TAKEN
        if name in self.words:
            return self.words[name][0]
        found = flags_of(self.release).defaults.get(name)
        return default if found is None else str(found)

    def integer(self, name: str) -> int | None:
        found = self._number(name, int, "a whole number")
        if found is not None and abs(found) > LARGEST_COUNT:
            raise RecipeError(f"--{name} {found}", expected=f"at most {LARGEST_COUNT:,}")
        return found

    def number(self, name: str) -> float | None:
        found = self._number(name, float, "a number")
        if found is not None and not math.isfinite(found):
            raise RecipeError(f"--{name} {found}", expected="a finite number")
        return found

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


def parse_flags(words: Sequence[str], release: str) -> Flags:
    """Sort out a command line. Law: nothing is dropped in silence; a name is used, listed as ignored, or refused.

    Flags that the release does not have are all named in one error.
    """
    used: dict[str, tuple[str, ...]] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    takes = flags_of(release).takes
    for name, values in _split(words):
        if name in LAUNCHER:
            ignored.append(f"--{name}")
        elif name not in takes:
            unknown.append(name)
        else:
            _check_values(name, values, takes[name])
            if name in TAKEN:
                used[name] = values
            elif name not in REFUSED:
                ignored.append(f"--{name}")
            else:
                raise RecipeError(
                    f"--{name}: no cache can be prepared for such a job",
                    found=REFUSED[name],
                    fix="let the job build its own cache, or run it without this flag",
                )
    if unknown:
        raise _unknown_flags(list(dict.fromkeys(unknown)), release)
    return Flags(release, used, tuple(dict.fromkeys(ignored)))


def _split(words: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each flag with the words up to the next."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for word in words:
        match = _FLAG.match(word)
        if match is not None:
            found.append((match[1].replace("_", "-"), () if match[2] is None else (match[2],)))
        elif found:
            found[-1] = (found[-1][0], (*found[-1][1], word))
        else:
            raise RecipeError(f'"{word}": belongs to no flag', expected="flags as in the launch script")
    return found


def _check_values(name: str, values: tuple[str, ...], takes: str) -> None:
    if takes == "*" or (takes == "+" and values) or str(len(values)) == takes:
        return
    raise RecipeError(f"--{name}: has {len(values)} values", found=" ".join(values) or None, expected=_VALUES[takes])


def _unknown_flags(names: Sequence[str], release: str) -> RecipeError:
    """All of them at once, each with the releases that have it."""
    where = {name: releases_with(name) for name in names}
    common = [other for other in RELEASES if all(other in found for found in where.values())]
    return RecipeError(
        f"{', '.join(f'--{name}' for name in names)}: not known to release {release} of Megatron",
        found="; ".join(f"--{name} is in {', '.join(found) or 'no release'}" for name, found in where.items()),
        expected=f"flags of Megatron's GPT training, release {release}",
        fix=f"if that is the job's release, add --megatron-release {' or '.join(common)}"
        if common
        else "correct the name, or leave the flag out if it does not change the data; training itself keeps it",
    )


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
