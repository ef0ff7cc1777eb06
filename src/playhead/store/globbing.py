"""Glob patterns over the keys of a bucket, as over paths: `*` stays within a part, `**` is any number of parts."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from glob import has_magic

__all__ = ["fixed_part", "has_magic", "matches"]


def fixed_part(pattern: str) -> str:
    """The parts before the first wildcard: the prefix that a store can list."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts[:-1]) if has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed])


def matches(key: str, pattern: str) -> bool:
    return _match(key.split("/"), pattern.split("/"))


def _match(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        skipped = next((i for i, part in enumerate(parts) if part.startswith(".")), len(parts))
        if len(patterns) == 1:
            return skipped == len(parts)
        return any(_match(parts[i:], patterns[1:]) for i in range(skipped + 1))
    if not parts or (parts[0].startswith(".") and not patterns[0].startswith(".")):
        return False
    return fnmatchcase(parts[0], patterns[0]) and _match(parts[1:], patterns[1:])
