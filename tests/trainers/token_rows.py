"""Token sequences to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from journal import VOCABULARY

from corpora import lengths_of, recipe_in
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from small_data import write_jsonl

LANES = 4
BATCHINGS: dict[str, dict[str, Any]] = {
    "endless": {"batching": {"type": "budget", "budget": 120}},  # has no length: Lightning fetches one batch ahead
    "passes": {"batching": {"type": "fixed", "size": 2}, "epochs": 1},  # has one
    "unsized passes": {"batching": {"type": "budget", "budget": 120}, "epochs": 1},
}


def write_recipe(folder: Path, kind: str, **fields: Any) -> Recipe:
    """A prepared recipe of some sixty samples, about a dozen steps to a pass."""
    rows = []
    for i, length in enumerate(lengths_of(3, 1, 61, 60)[0]):
        tokens = [(i * 7 + j * j) % VOCABULARY for j in range(length)]
        rows.append({"id": f"text-{i}", "number": i, "n": length, "input_ids": tokens, "labels": tokens})
    write_jsonl(folder / "text.jsonl", rows)
    write_jsonl(folder / "dev.jsonl", rows[:9])
    sources = {"path": "text.jsonl", "name": "text", "length": "n"}
    dev = {"sources": [{"name": "dev", "path": "dev.jsonl", "length": "n"}], "batching": {"type": "fixed", "size": 2}}
    options = {"lanes": LANES, "seed": 5, "sequence": "input_ids", "pad_values": {"labels": -100}}
    recipe = recipe_in(
        folder, sources, **{**options, **BATCHINGS[kind], "evaluation": {"dev": {**dev, "lanes": 2}}, **fields}
    )
    prepare(recipe, workers=1)
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    return recipe
