"""`playhead plan --step`: how many steps it has to plan, where samples are, and whose lanes are meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import as_json, playhead, refused
from corpora import lengths_of, prepared, recipe_in, write_speech, write_text
from playhead.cli import step_view
from playhead.errors import EndOfStreamError
from playhead.feed.ledger import seek, steps_to_plan, write_ahead
from playhead.recipe.values import Recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeks")
    text = write_text(folder, "text", lengths_of(1, 2, 20))
    calls = write_speech(folder, "calls", [[0.5, 1.5, 2.5]])
    dev = {"sources": [write_text(folder, "dev", [[7] * 10])], "batching": {"type": "fixed", "size": 4}, "lanes": 4}
    pack = {"batching": {"type": "pack", "max_length": 500}, "lanes": 2, "evaluation": {"dev": dev}}
    fixed = {"batching": {"type": "fixed", "size": 2}, "lanes": 2}
    for name, recipe in {
        "pack": recipe_in(folder, text, **pack),
        "fixed": recipe_in(folder, text, **fixed),
        "passes": recipe_in(folder, text, **pack | {"epochs": 100}),
        "calls": recipe_in(folder, calls, **fixed),
    }.items():
        prepared(recipe)
        (folder / f"{name}.json").write_text(json.dumps(recipe.to_dict()))
    return folder


def test_before_a_long_search_the_command_that_avoids_it_is_named_in_one_line(folder: Path) -> None:
    far = step_view.LONG_SEEK + 1
    done = playhead(folder, "plan", "pack.json", "--step", str(far))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"planning {far:,} steps; after `playhead prepare RECIPE --steps {far}` they are a look-up"
    ]


@pytest.mark.parametrize(("recipe", "step"), [("pack", "900"), ("fixed", "1000000000")])
def test_a_short_search_or_a_jump_is_silent_in_a_pipe(folder: Path, recipe: str, step: str) -> None:
    done = playhead(folder, "plan", f"{recipe}.json", "--step", step)
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_counts_the_steps_planned_and_changes_nothing(folder: Path) -> None:
    recipe = Recipe.load(folder / "pack.json")
    plan = prepared(recipe)
    write_ahead(recipe, plan, 300)
    told: list[int] = []
    cursor = seek(recipe, plan, 2900, told.append)
    assert cursor == plan.seek(2900)
    assert told == sorted(told)
    assert len(told) >= 4
    assert told[-1] < steps_to_plan(recipe, plan, 2900) <= 2900 - 200


def test_a_jump_plans_no_steps(folder: Path) -> None:
    recipe = Recipe.load(folder / "fixed.json")
    plan = prepared(recipe)
    told: list[int] = []
    assert steps_to_plan(recipe, plan, 10**9) == 0
    assert seek(recipe, plan, 10**9, told.append) == plan.seek(10**9)
    assert told == []


def test_a_step_past_the_end_is_refused_by_its_own_number_with_progress_too(folder: Path) -> None:
    recipe = Recipe.load(folder / "passes.json")
    plan = prepared(recipe)
    with pytest.raises(EndOfStreamError, match="step 1,000,000 is past the end"):
        seek(recipe, plan, 1_000_000, lambda _: None)


def test_json_tells_the_bytes_of_a_sample_and_its_length_as_a_number(folder: Path) -> None:
    for name, unit, ending in (("pack", "tokens", b"\n"), ("calls", "milliseconds", b"")):
        found = as_json(folder, "plan", f"{name}.json", "--step", "3")
        (lane, *_) = found["lanes"]
        assert lane["unit"] == unit
        for pick in lane["picks"]:
            (where,) = pick["files"]
            data = Path(where["file"]).read_bytes()[where["offset"] : where["offset"] + where["num_bytes"]]
            assert data.endswith(ending)
            assert isinstance(pick["length"], int)
            if name == "pack":
                assert json.loads(data)["n"] == pick["length"]
            assert where["file"] in pick["place"]


def test_a_rank_without_a_world_is_told_to_name_it(folder: Path) -> None:
    done = playhead(folder, "plan", "pack.json", "--step", "1", "--rank", "1")
    assert done.returncode == 2
    assert "Add --world" in done.stderr


@pytest.mark.parametrize("words", [("plan", "pack.json"), ("run", "pack.json", "--rank", "0")])
def test_a_world_that_does_not_fit_an_evaluation_set_is_told_of_the_lanes_of_the_set(
    folder: Path, words: tuple[str, ...]
) -> None:
    error = refused(folder, *words, "--split", "dev", "--world", "3")
    assert "`lanes: 6` under `evaluation.dev`" in str(error)
