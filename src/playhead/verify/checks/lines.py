"""The line of a place in a recipe: `sources[2].weight` in the text of its file."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

import yaml

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def line_of(text: str, place: str) -> int | None:
    """The line of the place, or of the nearest around it that is written; None where nothing of it is.

    JSON is read as YAML, which it is for this purpose.
    """
    node, line = _composed(text), None
    parts = [int(number) if number else name for number, name in _PART.findall(place)]
    while parts and node is not None:
        node, at, used = _inside(node, parts)
        line = at or line
        parts = parts[used:]
    return line


@lru_cache(maxsize=1)  # every finding of a recipe asks for it
def _composed(text: str) -> yaml.Node | None:
    try:
        found: yaml.Node | None = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    return found


def _inside(node: yaml.Node, parts: list[int | str]) -> tuple[yaml.Node | None, int | None, int]:
    """The node of the first parts, its line, and how many parts it took: a key may have dots."""
    if isinstance(node, yaml.SequenceNode) and isinstance(parts[0], int) and parts[0] < len(node.value):
        found = node.value[parts[0]]
        return found, found.start_mark.line + 1, 1
    if isinstance(node, yaml.MappingNode):
        names = [str(part) for part in takewhile(lambda part: isinstance(part, str), parts)]
        for count in range(len(names), 0, -1):
            for key, value in _entries(node):
                if key.value == ".".join(names[:count]):
                    return value, key.start_mark.line + 1, count
    return None, None, 1


def _entries(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """The keys of a mapping with their values, those of merged mappings (`<<`) last."""
    own = [(key, value) for key, value in node.value if key.value != "<<"]
    merged = [value for key, value in node.value if key.value == "<<"]
    mappings = [
        inner for value in merged for inner in (value.value if isinstance(value, yaml.SequenceNode) else [value])
    ]
    return own + [entry for inner in mappings if isinstance(inner, yaml.MappingNode) for entry in _entries(inner)]
