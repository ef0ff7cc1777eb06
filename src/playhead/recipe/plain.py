"""A recipe as plain dictionaries and lists, as a user could write it."""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from typing import Any

import msgspec

from playhead.recipe.environment import escape

TAG = "kind"  # distinguishes sources from groups inside msgspec; users never write it


def to_plain(value: Any, only: Container[str] | None = None) -> Any:
    """Law: reading `to_plain(recipe)` returns the same recipe. `only` names the fields of a struct that are wanted."""
    if isinstance(value, msgspec.Struct):
        found = {}
        for spec in _fields(type(value)):
            if only is not None and spec.name not in only:
                continue
            item = getattr(value, spec.name)
            if spec.required or item != _default(spec):
                found[spec.name] = to_plain(item)
        tag_field = value.__struct_config__.tag_field
        if tag_field is not None and tag_field != TAG:
            found[tag_field] = value.__struct_config__.tag
        return found
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return escape(value) if isinstance(value, str) else value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)  # it evaluates annotations: a millisecond


def _default(spec: msgspec.structs.FieldInfo) -> Any:
    return spec.default if spec.default_factory is msgspec.NODEFAULT else spec.default_factory()
