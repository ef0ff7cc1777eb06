"""A recipe as plain dictionaries and lists, as a user could write it."""

from __future__ import annotations

from typing import Any

import msgspec

from playhead.recipe.environment import escape

TAG = "kind"  # distinguishes sources from groups inside msgspec; users never write it


def to_plain(value: Any) -> Any:
    """Law: reading `to_plain(recipe)` returns the same recipe."""
    if isinstance(value, msgspec.Struct):
        found = {}
        for spec in msgspec.structs.fields(value):
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


def _default(spec: msgspec.structs.FieldInfo) -> Any:
    return spec.default if spec.default_factory is msgspec.NODEFAULT else spec.default_factory()
