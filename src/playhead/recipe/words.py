"""Plain words for values and types, for error messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Real
from typing import Any

from msgspec import inspect as mi


def describe(value: Any) -> str:
    """A value as its author would recognize it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, Real):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the text "{value}"' if len(value) <= 60 else f'a text beginning "{value[:60]}"'
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(f'`{key}`' for key in value) or 'nothing in it'}"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return f"a value of type {type(value).__name__}"


def expected_of(kind: mi.Type) -> str:
    """A type in plain words."""
    if isinstance(kind, (mi.IntType, mi.FloatType)):
        noun = "a whole number" if isinstance(kind, mi.IntType) else "a number"
        bound = f" of at least {kind.ge}" if kind.ge is not None else ""
        bound += f" and at most {kind.le}" if kind.le is not None else ""
        return noun + (f" above {kind.gt:g}" if kind.gt is not None else bound)
    if isinstance(kind, mi.LiteralType):
        return f"one of: {', '.join(map(str, kind.values))}" if len(kind.values) > 1 else f"`{kind.values[0]}`"
    if isinstance(kind, mi.ListType):
        return f"a list, each item {expected_of(kind.item_type)}"
    if isinstance(kind, mi.TupleType):
        return f"a list of {len(kind.item_types)}, each {expected_of(kind.item_types[0])}"
    if isinstance(kind, mi.StructType):
        return f"a mapping with {', '.join(f'`{field.name}`' for field in kind.fields if field.required) or 'keys'}"
    if isinstance(kind, mi.UnionType):
        return _any_of(kind)
    simple = {mi.StrType: "text", mi.BoolType: "true or false", mi.DictType: "a mapping", mi.NoneType: "nothing"}
    return simple.get(type(kind), "something else")


def _any_of(kind: mi.UnionType) -> str:
    structs = [member for member in kind.types if isinstance(member, mi.StructType)]
    words = [expected_of(member) for member in kind.types if not isinstance(member, (mi.StructType, mi.NoneType))]
    if len(structs) > 1 and structs[0].tag_field == "type":
        words.append(f"a mapping with `type`, one of: {', '.join(str(struct.tag) for struct in structs)}")
    elif len(structs) > 1:
        words.append("a mapping: a source with `name` and `path`, or a group with `name` and `sources`")
    else:
        words += [expected_of(struct) for struct in structs]
    return " or ".join(words)


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known words most like this one, best first."""
    return get_close_matches(word, list(known), n=3, cutoff=0.6)


def quoting(value: Any) -> str | None:
    """Advice for a value that YAML did not read as text."""
    if isinstance(value, bool):
        return f'if this is a word, put it in quotes: "{str(value).lower()}"'
    if isinstance(value, Real):
        return f'if this is text, put it in quotes: "{value}"'
    return None
