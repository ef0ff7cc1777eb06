"""Brace patterns in paths: `{000..511}`, `{train,extra}`, and NeMo's `_OP_0..63_CL_`, `(0..63)`, `[0..63]`, `<0..63>`.

Globs (`*.tar`) are not expanded here: that needs a listing of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from playhead.errors import RecipeError

MOST_PATHS = 1_000_000
_OTHER_RANGES = re.compile(r"_OP_(\d+\.\.\d+)_CL_ | \((\d+\.\.\d+)\) | \[(\d+\.\.\d+)\] | <(\d+\.\.\d+)>", re.VERBOSE)
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand_braces(pattern: str, where: str) -> list[str]:
    """Every path that a pattern expands to, the last brace varying fastest.

    Law: a pattern without braces is itself; several braces expand to their product; zero padding is kept.
    """
    braced = _OTHER_RANGES.sub(lambda match: "{" + next(filter(None, match.groups())) + "}", pattern)
    return list(_expand(braced, where))


def _expand(text: str, where: str) -> list[str]:
    choices: list[list[str]] = []
    num_paths = 1
    for piece in _pieces(text):
        choices.append(_choices(piece, where))
        num_paths *= len(choices[-1])
        if num_paths > MOST_PATHS:
            raise _too_many(text, num_paths, where)
    return ["".join(parts) for parts in product(*choices)]


def _choices(piece: str, where: str) -> list[str]:
    if not (piece.startswith("{") and piece.endswith("}") and len(piece) > 1):
        return [piece]
    inside = piece[1:-1]
    found = _RANGE.fullmatch(inside)
    if found:
        return _numbers(found[1], found[2], where)
    alternatives = list(_alternatives(inside))
    if len(alternatives) == 1:
        return ["{" + text + "}" for text in _expand(inside, where)]
    return [text for alternative in alternatives for text in _expand(alternative, where)]


def _numbers(first: str, last: str, where: str) -> list[str]:
    padded = any(len(text) > 1 and text.startswith("0") for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    low, high = int(first), int(last)
    if low > high:
        raise RecipeError(
            f"{where}: a range of paths is descending",
            found=f"{first}..{last}",
            expected="the smaller number first",
            fix=f"write {last}..{first}",
        )
    if high - low >= MOST_PATHS:
        raise _too_many(f"{first}..{last}", high - low + 1, where)
    return [f"{number:0{width}d}" for number in range(low, high + 1)]


def _pieces(text: str) -> Iterator[str]:
    """Split a text into balanced `{...}` groups and the text between them; an unmatched brace is a plain character."""
    plain = 0
    i = 0
    while i < len(text):
        end = closing(text, i) if text[i] == "{" else None
        if end is None:
            i += 1
            continue
        if plain < i:
            yield text[plain:i]
        yield text[i : end + 1]
        plain = i = end + 1
    if plain < len(text):
        yield text[plain:]


def closing(text: str, opening: int) -> int | None:
    """Where the brace that opens at a place is closed; None if it is not."""
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    return None


def _alternatives(inside: str) -> Iterator[str]:
    """Split at the commas that are not inside a deeper brace."""
    depth = start = 0
    for i, character in enumerate(inside):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield inside[start:i]
            start = i + 1
    yield inside[start:]


def _too_many(pattern: str, num_paths: int, where: str) -> RecipeError:
    return RecipeError(
        f"{where}: a pattern expands to too many paths",
        found=f"{num_paths:,} paths or more from {pattern}",
        expected=f"at most {MOST_PATHS:,}",
        fix="check the range, or use a glob such as `*.tar`",
    )
