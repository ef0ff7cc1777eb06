from __future__ import annotations

from pathlib import Path

import pytest

import measured_maps
from measured_data import ROWS, measured, recipe_of, refusal, shards
from playhead.errors import PrepareError, RecipeError
from playhead.prepare import prepare, stretches
from small_data import all_lengths, table_of, write_jsonl


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows to a stretch, so that small files have several."""
    monkeypatch.setattr(stretches, "MOST_ROWS", 4)


def test_every_failing_stretch_is_told_with_row_place_function_and_line(tmp_path: Path) -> None:
    for i, bad in enumerate((3, 9, 100)):
        write_jsonl(tmp_path / f"{i}.jsonl", [{"n": 0 if j == bad else 5, "id": str(j)} for j in range(ROWS)])
    recipe = recipe_of(tmp_path, "raising")
    with pytest.raises(PrepareError) as caught:
        prepare(recipe, measure=True)
    first, second = caught.value.failures
    line = measured_maps.raising.__code__.co_firstlineno + 1
    assert (first.source, first.place) == ("s", str(tmp_path / "0.jsonl"))
    assert f'source "s", raw row 3 ({tmp_path / "0.jsonl"}, byte ' in first.problem
    assert "the map measured_maps:raising raised ZeroDivisionError" in first.problem
    assert f"measured_maps.py, line {line}, in raising" in first.problem
    assert "raw row 19" in second.problem
    # In processes the same is told, of the two stretches that are left.
    with pytest.raises(PrepareError) as again:
        prepare(recipe, measure=True, workers=2, processes=True)
    assert {failure.problem for failure in again.value.failures} == {first.problem, second.problem}
    for i in range(2):
        write_jsonl(tmp_path / f"{i}.jsonl", [{"n": 5, "id": str(j)} for j in range(ROWS)])
    assert measured(recipe) == 20  # shard 2 was finished, and is kept
    assert all_lengths(table_of(recipe)) == [2] * 30


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (1, 'the sample has no field "tokens" to measure'),
        (2, 'field "tokens" has no length'),
        (3, 'field "tokens" has no length'),
    ],
)
def test_a_sample_that_has_no_length_is_refused_by_row_and_place(tmp_path: Path, n: int, words: str) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": 0}, {"n": n}])
    assert f"raw row 1 ({path}, byte 9): {words}" in refusal(recipe_of(tmp_path, "strange"), measure=True)


def test_broken_rows_are_told_by_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1, "id": "a"}\n{"n": \n')
    message = refusal(recipe_of(tmp_path), measure=True)
    assert "byte 20" in message
    assert "broken JSON" in message


def test_a_map_that_cannot_be_found_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="the module nowhere_at_all cannot be found"):
        prepare(recipe_of(shards(tmp_path), None, map="nowhere_at_all:f"), measure=True)
    assert "has no function absent" in refusal(recipe_of(tmp_path, "absent"), measure=True)
