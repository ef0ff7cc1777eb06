"""Counts, lists and names in messages."""

from __future__ import annotations

from collections.abc import Iterable

from playhead.formats.collect import ROW_ID
from playhead.formats.registry import format_of
from playhead.recipe.tree import Leaf

_SHOWN = 5


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(items: Iterable[object], most: int = _SHOWN) -> str:
    """The first of some items, and whether there are more."""
    found = [str(item) for item in items]
    return ", ".join([*found[:most], *(["..."] if len(found) > most else [])])


def id_field(leaf: Leaf) -> str:
    """The field that holds the ids of a source, as one would name it in the recipe."""
    name = leaf.source.ids or format_of(leaf.source, leaf.path).default_id
    return "id" if name in (None, ROW_ID) else name
