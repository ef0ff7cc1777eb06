"""Small recipes for the tests, as a user would write them."""

from __future__ import annotations

from typing import Any

import pytest

from playhead import Recipe, RecipeError

FIXED = {"type": "fixed", "size": 4}
PACK = {"type": "pack", "max_length": 512}


def source(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "path": f"{name}.jsonl", "length": "num_tokens", **fields}


def recipe(*sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"sources": list(sources) or [source()], "batching": FIXED, **fields}


def group(name: str, *sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "sources": list(sources) or [source(f"{name}-a")], **fields}


def refusal(values: Any) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        Recipe.parse(values, "/data")
    return caught.value
