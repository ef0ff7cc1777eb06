"""A launch script's arguments, as words or by name -> the relevant values, and the names of ignored ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, TypeVar

from playhead.errors import RecipeError
from playhead.megatron.job import LARGEST_COUNT
from playhead.megatron.releases import INTEGERS, LAUNCHER, NUMBERS, REFUSED, RELEASES, TAKEN, flags_of, releases_with

_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?\Z", re.DOTALL)
_VALUES = {
    "0": "no value; by name, true or false",
    "1": "one value",
    "3": "three values",
    "*": "any number of values",
    "+": "one or more values",
}

T = TypeVar("T", int, float)
Given = Iterator[tuple[str, tuple[Any, ...]]]


@dataclass(frozen=True)
class Flags:
    """The relevant flags, each with its values, and the names of ignored ones.

    A value that was not given is the default of the release.
    """

    release: str
    values: Mapping[str, tuple[Any, ...]]
    ignored: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a flag was given."""
        assert name in TAKEN
        return name in self.values

    def many(self, name: str) -> list[str] | None:
        return list(self.values[name]) if self.has(name) else None

    def text(self, name: str, default: str | None = None) -> str | None:
        found = self._one(name)
        return default if found is None else str(found)

    def integer(self, name: str) -> int | None:
        assert name in INTEGERS
        found: int | None = self._one(name)
        return found

    def number(self, name: str) -> float | None:
        assert name in NUMBERS
        found: float | None = self._one(name)
        return found

    def at_least(self, name: str, least: int) -> int | None:
        """A whole number that may not be smaller."""
        found = self.integer(name)
        if found is not None and found < least:
            raise RecipeError(f"--{name} {found}", expected=f"at least {least}", fix="give it as the training job does")
        return found

    def _one(self, name: str) -> Any:
        return self.values[name][0] if self.has(name) else flags_of(self.release).defaults.get(name)


def parse_flags(words: Sequence[str], release: str, named: Mapping[str, Any] = MappingProxyType({})) -> Flags:
    """Parse a job's arguments: those by name, then those of a command line, which replace them.

    Laws: an argument by name is the same as its flag; nothing is dropped silently: a name is used, listed as
    ignored, or refused. Flags that the release does not have are all named in one error.
    """
    used: dict[str, tuple[Any, ...]] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    takes = flags_of(release).takes
    for name, values in (*_by_name(named), *_of_words(words)):
        if name in LAUNCHER:
            ignored.append(f"--{name}")
        elif name not in takes:
            unknown.append(name)
        else:
            _check_values(name, values, takes[name])
            if name in TAKEN:
                used[name] = tuple(_typed(name, value) for value in values)
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


def _of_words(words: Sequence[str]) -> Given:
    """Each flag with the words up to the next."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        match = _FLAG.match(word)
        if match is not None:
            found.append((match[1].replace("_", "-"), [] if match[2] is None else [match[2]]))
        elif found:
            found[-1][1].append(word)
        else:
            raise RecipeError(f'"{word}": belongs to no flag', expected="flags as in the launch script")
    return ((name, tuple(values)) for name, values in found)


def _by_name(named: Mapping[str, Any]) -> Given:
    """Arguments as from YAML or Python: a switch is true; false or null means not given."""
    for name, value in named.items():
        if value is None or value is False:
            continue
        values = tuple(value) if isinstance(value, (list, tuple)) else () if value is True else (value,)
        for item in values:
            if isinstance(item, bool) or not isinstance(item, (str, Real, PathLike)):
                raise RecipeError(
                    f"{name}: {type(item).__name__}", expected="a text, a number, true or false, or a list of those"
                )
        yield str(name).replace("_", "-"), values


def _check_values(name: str, values: tuple[Any, ...], takes: str) -> None:
    if takes == "*" or (takes == "+" and values) or str(len(values)) == takes:
        return
    found = " ".join(map(str, values)) or None
    raise RecipeError(f"--{name}: has {len(values)} values", found=found, expected=_VALUES[takes])


def _typed(name: str, value: Any) -> int | float | str:
    if name in INTEGERS:
        return _number(name, value, int, "a whole number")
    if name in NUMBERS:
        return _number(name, value, float, "a number")
    return str(fspath(value) if isinstance(value, PathLike) else value)


def _number(name: str, value: Any, kind: type[T], expected: str) -> T:
    """A number as Megatron reads it from a word; 1e3 of a YAML file is a whole number, as in a recipe."""
    try:
        found = kind(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise RecipeError(f"--{name} {value}", expected=expected) from error
    if kind is int and not isinstance(value, str) and found != value:
        raise RecipeError(f"--{name} {value}", expected=expected)
    if kind is int and abs(found) > LARGEST_COUNT:
        raise RecipeError(f"--{name} {found}", expected=f"at most {LARGEST_COUNT:,}")
    if not math.isfinite(found):
        raise RecipeError(f"--{name} {found}", expected="a finite number")
    return found


def _unknown_flags(names: Sequence[str], release: str) -> RecipeError:
    """One error for all unknown flags, each with the releases that have it."""
    where = {name: releases_with(name) for name in names}
    common = [other for other in RELEASES if all(other in found for found in where.values())]
    return RecipeError(
        f"{', '.join(f'--{name}' for name in names)}: unknown in release {release} of Megatron",
        found="; ".join(f"--{name} is in {', '.join(found) or 'no release'}" for name, found in where.items()),
        expected=f"flags of Megatron's GPT training, release {release}",
        fix=f"if that is the job's release, add --megatron-release {' or '.join(common)}"
        if common
        else "correct the name, or leave the flag out if it does not change the data; training itself keeps it",
    )
