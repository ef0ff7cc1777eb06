"""Sources whose lengths are measured, for the tests of measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from playhead.errors import PrepareError
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from small_data import write_jsonl

ROWS = 10


def shards(folder: Path, *numbers: int) -> Path:
    for i in numbers or range(3):
        write_jsonl(folder / f"{i}.jsonl", [{"n": i * ROWS + j, "id": f"{i}-{j}"} for j in range(ROWS)])
    return folder


def recipe_of(folder: Path, function: str | None = "tokens", **fields: Any) -> Recipe:
    source = {"name": "s", "path": "*.jsonl", "length": {"measure": True}, **fields.pop("source", {})}
    found = {"sources": [source], "batching": {"type": "fixed", "size": 2}, "cache_dir": "cache", **fields}
    if function is not None:
        found["map"] = f"measured_maps:{function}"
    return Recipe.parse(found, folder)


def refusal(recipe: Recipe, **how: Any) -> str:
    with pytest.raises(PrepareError) as caught:
        prepare(recipe, **how)
    return str(caught.value)


def measured(recipe: Recipe, **how: Any) -> int:
    """Prepare with measuring; the number of rows that were measured."""
    return prepare(recipe, measure=True, **how).sources[0].measured_rows
