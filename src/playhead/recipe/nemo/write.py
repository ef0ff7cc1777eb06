"""The values of a recipe as YAML that is pleasant to read, with the comments of notes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.report import Note
from playhead.recipe.text import parse_yaml

_WIDTH = 120
_BLOCKS = ("sources", "evaluation", "noises", "augment")  # always one entry a line


def recipe_text(values: Mapping[str, Any], notes: list[Note], header: list[str]) -> str:
    """Law: reading the text gives the values."""
    comments: dict[str, list[str]] = {}
    for note in notes:
        if note.at is not None:
            text = f"{note.place}: {note.was}. {note.why[:1].upper()}{note.why[1:]}."
            if text not in comments.setdefault(note.at, []):
                comments[note.at].append(text)
    lines = [*(f"# {line}" for line in header)]
    for key, value in values.items():
        lines += [f"# {text}" for text in comments.pop(key, [])]
        lines += _entry(key, value, 0, comments)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, indent: int, comments: dict[str, list[str]]) -> Iterator[str]:
    start = f"{' ' * indent}{_scalar(key)}:"
    line = f"{start} {_flow(value)}"
    if not _is_nested(key, value) and len(line) <= _WIDTH:
        yield line
        return
    if isinstance(value, Mapping):
        yield start
        for name, item in value.items():
            yield from _entry(name, item, indent + 2, comments)
    elif isinstance(value, list):
        yield start
        for item in value:
            yield from _item(item, indent + 2, comments)
    else:
        yield line


def _item(item: Any, indent: int, comments: dict[str, list[str]]) -> Iterator[str]:
    start = f"{' ' * indent}- "
    if not isinstance(item, Mapping):
        yield start + _flow(item)
        return
    yield from (f"{' ' * indent}# {text}" for text in comments.pop(str(item.get("name")), []))
    if len(start) + len(_flow(item)) <= _WIDTH and not any(_is_nested(key, value) for key, value in item.items()):
        yield start + _flow(item)
        return
    inner = [line for key, value in item.items() for line in _entry(key, value, indent + 2, comments)]
    yield start + inner[0][indent + 2 :]
    yield from inner[1:]


def _is_nested(key: str, value: Any) -> bool:
    if isinstance(value, Mapping) and any(_is_nested(name, item) for name, item in value.items()):
        return True
    return key in _BLOCKS and isinstance(value, (Mapping, list)) and bool(value)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow(item) for item in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """A plain scalar where YAML reads it as the same value, also inside braces; else in quotes."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    if set(text) & set(",[]{}#&*!|>'\"%@`\n\t:") and not _is_plain_path(text):
        return json.dumps(text, ensure_ascii=False)
    try:
        read = parse_yaml(f"[{text}]", Path("text"))
    except RecipeError:
        return json.dumps(text, ensure_ascii=False)
    return text if read == [text] and type(read[0]) is str else json.dumps(text, ensure_ascii=False)


def _is_plain_path(text: str) -> bool:
    return not set(text) & set(",[]{}#&*!|>'\"%@`\n\t") and ": " not in text and not text.endswith(":")
