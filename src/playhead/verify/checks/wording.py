"""Counts and lists in messages."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 5


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(items: Iterable[object], most: int = _SHOWN) -> str:
    """The first of some items, and whether there are more."""
    found = [str(item) for item in items]
    return ", ".join([*found[:most], *(["..."] if len(found) > most else [])])
