"""Small corpora of real files, prepared for real, and the plans over them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from playhead.plan.plan import Plan
from playhead.plan.step import MicroBatch, Step
from playhead.prepare import prepare
from playhead.recipe.values import Recipe
from playhead.resolve import open_plan
from small_data import write_jsonl, write_tar

FIXED = {"type": "fixed", "size": 4}


def write_text(folder: Path, name: str, shards: Sequence[Sequence[int]], outputs: bool = False) -> dict[str, Any]:
    """JSONL shards with these lengths in `n` (and, asked for, half of them in `m`); returns the source's recipe."""
    for i, lengths in enumerate(shards):
        rows = [{"n": int(n), "id": f"{name}-{i}-{j}", "lang": "en" if j % 2 else "pl"} for j, n in enumerate(lengths)]
        if outputs:
            rows = [{**row, "m": int(row["n"]) // 2} for row in rows]
        write_jsonl(folder / f"{name}-{i:03}.jsonl", rows)
    return {"name": name, "path": f"{name}-*.jsonl", "length": "n"}


def write_speech(folder: Path, name: str, shards: Sequence[Sequence[float]]) -> dict[str, Any]:
    """WebDataset tars with these durations in seconds; returns the source's recipe."""
    for i, durations in enumerate(shards):
        members = []
        for j, duration in enumerate(durations):
            members += [
                (f"{j:05}.raw", b"\0" * (20 + j)),
                (f"{j:05}.json", json.dumps({"duration": duration}).encode()),
            ]
        write_tar(folder / f"{name}-{i:03}.tar", members)
    return {"name": name, "path": f"{name}-*.tar", "length": {"field": "json.duration", "unit": "seconds"}}


def lengths_of(seed: int, num_shards: int, num_rows: int, longest: int = 400) -> list[list[int]]:
    """Log-normal lengths from 1 to `longest`, shards of different sizes."""
    noise = np.random.default_rng(seed)
    sizes = [num_rows + 3 * i for i in range(num_shards)]
    return [np.clip(noise.lognormal(4, 0.8, size), 1, longest).astype(int).tolist() for size in sizes]


def recipe_in(folder: Path, *sources: Mapping[str, Any], **fields: Any) -> Recipe:
    """A recipe of a folder's sources, with fixed batches unless it says otherwise."""
    grouped = any("batching" in source for source in sources)
    defaults = {} if grouped else {"batching": FIXED}
    return Recipe.parse({"sources": list(sources), **defaults, **fields}, folder)


def prepared(recipe: Recipe, split: str | None = None, world_size: int = 1) -> Plan:
    """The recipe's plan, its indexes made first."""
    prepare(recipe, workers=1)
    return open_plan(recipe, split, world_size)


def plan_in(folder: Path, *sources: Mapping[str, Any], **fields: Any) -> Plan:
    return prepared(recipe_in(folder, *sources, **fields))


def take(plan: Plan, count: int | None = None) -> list[Step]:
    return [step for step, _ in islice(plan.steps(), count)]


def real_batches(steps: Sequence[Step]) -> list[MicroBatch]:
    return [batch for step in steps for batch in step.micro_batches if not batch.idle]


def named_rows(plan: Plan, steps: Sequence[Step]) -> list[tuple[str, int, int]]:
    """The (source, epoch, row) of every sample that counts, in the order of steps and lanes."""
    return [
        (plan.streams[batch.stream].source_names[source], epoch, row)
        for batch in real_batches(steps)
        for source, epoch, row in zip(
            batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True
        )
    ]


def once_each(epochs: int = 1, **num_rows: int) -> Counter[tuple[str, int, int]]:
    """Every row of the named sources, once in each epoch."""
    return Counter(
        (name, epoch, row) for name, count in num_rows.items() for epoch in range(epochs) for row in range(count)
    )
