"""Streams of any size, planned without data: what they cost, and that the checks of their laws can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import playhead
from playhead import Recipe, RecipeError
from playhead.inspect import simulation
from playhead.inspect.simulation import Simulation, simulate, with_ranks
from playhead.order.picks import Picks
from playhead.prepare import prepare
from small_data import write_jsonl

RANKS, ROWS = 16_384, 10**12
PACKS = {"type": "pack", "max_length": 4096}


def recipe_of(folder: Path, batching: dict[str, Any], **fields: Any) -> Recipe:
    sources = [
        {"name": "web", "path": "web.jsonl", "length": "n", "weight": 3},
        {"name": "books", "path": "books.jsonl", "length": "n", "weight": 1},
    ]
    return Recipe.parse({"sources": sources, "batching": batching, "weights_in": "samples", **fields}, folder)


@pytest.mark.parametrize(
    "batching",
    [PACKS, {"type": "fixed", "size": 2}, {"type": "bucket", "num": 4, "budget": 9_000}],
    ids=lambda b: b["type"],
)
def test_ten_to_the_twelve_rows_on_sixteen_thousand_ranks(tmp_path: Path, batching: dict[str, Any]) -> None:
    found = simulate(recipe_of(tmp_path, {**batching, "overlong": "drop"}, lanes=64), Simulation(RANKS, ROWS, 2))
    (stream,) = found.streams
    assert found.passed
    assert found.num_rows == ROWS
    assert found.lanes == stream.lanes == RANKS
    assert stream.windows[0] == 0
    assert (stream.windows[-1] + 1) * stream.window_size <= ROWS < (stream.windows[-1] + 3) * stream.window_size
    assert stream.samples_per_step >= RANKS
    assert found.state_bytes < 1024
    assert found.invented == ("web", "books")
    assert found.requests is None


def test_prepared_sources_keep_their_lengths_and_sizes(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "web.jsonl", [{"n": 100}] * 30)
    write_jsonl(tmp_path / "books.jsonl", [{"n": 700}] * 10)
    recipe = recipe_of(tmp_path, PACKS, lanes=2)
    prepare(recipe, workers=1)
    found = simulate(recipe, Simulation(4, 4_000_000, 2))
    assert (found.invented, found.requests, found.num_rows) == ((), 0, 4_000_000)
    (stream,) = found.streams
    mean = (3 * 100 + 700) / 4
    assert stream.samples_per_step == pytest.approx(4 * 4096 / mean, rel=0.1)
    assert found.index_bytes == pytest.approx(4_000_000 * 12.2, rel=0.01)


def test_lanes_grow_with_the_ranks_and_groups_in_proportion(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, PACKS, lanes=12)
    assert with_ranks(recipe, 8).lanes == 24
    assert with_ranks(recipe, 6).lanes == 12
    with pytest.raises(RecipeError, match="needs more lanes than a step can have"):
        with_ranks(recipe, 10_007)


@pytest.mark.parametrize(
    ("name", "law"),
    [("members", "a draw is on no lane, or on two"), ("row", "a row is drawn twice"), ("epoch", "is not the one")],
)
def test_a_broken_plan_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, law: str) -> None:
    planned = simulation._planned

    def broken(plan: Any, number: int) -> Any:
        window = planned(plan, number)
        if name == "members":
            window.groups.members[0] = window.groups.members[1]
            return window
        columns = {field: getattr(window.picks, field).copy() for field in ("source", "epoch", "row")}
        if name == "row":
            chosen = np.flatnonzero(columns["source"] == columns["source"][0])[:2]
            columns["row"][chosen[1]] = columns["row"][chosen[0]]
        else:
            columns["epoch"] += 1
        object.__setattr__(window, "picks", Picks(**columns))
        return window

    monkeypatch.setattr(simulation, "_planned", broken)
    found = simulate(recipe_of(tmp_path, PACKS), Simulation(4, 10**6, 1))
    assert not found.passed
    assert any(law in each for each in found.streams[0].broken)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe_of(tmp_path, PACKS, lanes=8).to_dict()))
    words = ["simulate", "recipe.yaml", "--ranks", "64", "--rows", "1e9", "--windows", "1"]
    shown = playhead(tmp_path, *words)
    assert shown.returncode == 0
    assert "64 ranks, 1,000,000,000 rows, 64 lanes (8 in the recipe)" in shown.stdout
    assert "kept: every draw on one lane" in shown.stdout
    found = json.loads(playhead(tmp_path, *words, "--json").stdout)
    assert found["passed"] is True
    assert found["streams"][0]["lanes"] == 64
