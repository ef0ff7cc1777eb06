"""Values given beside a configuration, as a job is started with: `model.train_ds.batch_size=8`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playhead.errors import RecipeError
from playhead.recipe.nemo.interpolation import parsed
from playhead.recipe.nemo.yaml_text import parse_yaml_text


def with_overrides(root: Any, overrides: Sequence[str]) -> Any:
    """The values with each override put in its place; mappings on the way are made."""
    for text in overrides:
        key, found, value = text.lstrip("+").partition("=")
        if not found or not key.strip():
            raise RecipeError("--set: is not a value for a key", found=text, expected="key.key=value")
        keys = parsed(key.strip())
        node = root
        for part, following in zip(keys, [*keys[1:], None], strict=True):
            if not _holds(node, part):
                raise RecipeError("--set: there is no such place", found=text)
            if following is None:
                node[part] = parse_yaml_text(value, f"--set {key}")
            elif isinstance(node, dict) and node.get(part) is None:
                node[part] = {}
            node = node[part]
    return root


def _holds(node: Any, key: str | int) -> bool:
    return isinstance(node, dict) or (isinstance(node, list) and isinstance(key, int) and key < len(node))
