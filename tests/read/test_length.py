"""Lengths after the map against those of the plan: a pack or a budget never overflows silently."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from deliveries import SPEECH_RATE, stream, write_tokens
from playhead import Batch, Loader, Recipe, SampleError
from playhead.prepare import prepare

BATCHINGS: dict[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 120},
    "bucket": {"type": "bucket", "edges": [20, 60], "budget": 120},
    "pack": {"type": "pack", "max_length": 64},
}


def first(recipe: Recipe, count: int = 12) -> list[Batch]:
    return [*islice(Loader(recipe), count)]


def sizes(batch: Batch) -> list[int]:
    """How long each sample is in the batch."""
    if "cu_seqlens" in batch:
        return [b - a for a, b in zip(batch["cu_seqlens"][:-1], batch["cu_seqlens"][1:], strict=True)]
    return batch["tokens_lengths"].tolist()


@pytest.mark.parametrize("function", ["doubled", "halved"])
@pytest.mark.parametrize("kind", BATCHINGS)
def test_another_length_than_planned_is_an_error_with_row_planned_and_actual(
    tmp_path: Path, kind: str, function: str
) -> None:
    # Its own rule says so, whatever becomes of other bad samples.
    fields = {"batching": BATCHINGS[kind], "map": f"loader_maps:{function}", "on_error": "substitute"}
    with pytest.raises(SampleError) as caught:
        first(stream(tmp_path, kind, **fields))
    error = caught.value
    assert error.problem.startswith('source "')
    assert f"({tmp_path}/" in error.problem
    assert 'not as long as planned: field "tokens"' in error.problem
    planned = int(str(error.expected).split(",")[0])
    assert int(str(error.found)) == (planned * 2 if function == "doubled" else planned // 2)
    assert "playhead prepare --measure" in str(error.fix)


@pytest.mark.parametrize("kind", BATCHINGS)
def test_what_is_too_long_is_cut_with_all_that_runs_along_it(tmp_path: Path, kind: str) -> None:
    fields = {"batching": BATCHINGS[kind], "on_length_mismatch": "truncate"}
    recipe = stream(tmp_path, kind, **fields, map="loader_maps:doubled")
    for batch in first(recipe):
        assert sizes(batch) == batch["n"].tolist()
        assert batch["labels"].shape == batch["tokens"].shape
        if kind == "pack":
            assert len(batch["tokens"]) == 64
        if kind in ("budget", "bucket"):
            assert batch["tokens"].size <= 120
    shorter = Recipe.parse({**recipe.to_dict(), "map": "loader_maps:halved"}, tmp_path)
    assert all(sizes(batch) == [n // 2 for n in batch["n"].tolist()] for batch in first(shorter))


@pytest.mark.parametrize("kind", BATCHINGS)
def test_what_is_too_long_is_replaced_where_the_recipe_says_so(tmp_path: Path, kind: str) -> None:
    def sometimes(sample: dict[str, Any]) -> dict[str, Any]:
        twice = sample["id"].endswith("1")
        return {**sample, "tokens": sample["tokens"] * 2, "labels": sample["labels"] * 2} if twice else sample

    fields = {"batching": BATCHINGS[kind], "on_length_mismatch": "substitute", "max_bad": 1.0}
    recipe = stream(tmp_path, kind, **fields)  # on_error stays `raise`
    planned = first(recipe, 40)
    found = [*islice(Loader(recipe, map=sometimes), 40)]
    changed = 0
    for batch, plan in zip(found, planned, strict=True):
        real = batch["weights"] > 0  # an empty slot repeats another
        assert all(new <= old for new, old, is_real in zip(sizes(batch), sizes(plan), real, strict=True) if is_real)
        assert not any(name.endswith("1") for name, is_real in zip(batch["id"], real, strict=True) if is_real)
        changed += batch["id"] != plan["id"]
    assert changed > 2
    with pytest.raises(SampleError, match="raised KeyError"):
        next(iter(Loader(recipe, map=lambda sample: sample["no such field"])))


@pytest.mark.parametrize(
    "batching",
    [
        {"type": "fixed", "size": 3, "max_length": 25},
        {"type": "budget", "budget": 25},
        {"type": "bucket", "edges": [10, 25], "size": 2},
        {"type": "pack", "max_length": 25},
    ],
    ids=lambda batching: batching["type"],
)
def test_overlong_samples_that_the_plan_cuts_are_really_cut(tmp_path: Path, batching: dict[str, Any]) -> None:
    found = first(stream(tmp_path, "fixed", batching={**batching, "overlong": "truncate"}))
    assert any(n > 25 for batch in found for n in batch["n"].tolist())
    for batch in found:
        assert sizes(batch) == [min(n, 25) for n in batch["n"].tolist()]
        assert batch["labels"].shape == batch["tokens"].shape


def test_seconds_are_checked_and_cut_by_the_rate_of_the_sequence(tmp_path: Path) -> None:
    batching = {"type": "budget", "budget": 0.8, "overlong": "truncate"}
    recipe = stream(tmp_path, "tar", batching=batching)
    found = first(recipe)
    for batch in found:
        expected = [min(int(0.8 * SPEECH_RATE), round(d * SPEECH_RATE)) for d in batch["duration"].tolist()]
        assert batch["tokens_lengths"].tolist() == expected
    other = Recipe.parse({**recipe.to_dict(), "sequence_rate": SPEECH_RATE // 2}, tmp_path)
    with pytest.raises(SampleError, match='not as long as planned: field "tokens"') as caught:
        first(other)
    assert str(caught.value.found).endswith(" s")
    unknown = {key: value for key, value in recipe.to_dict().items() if key != "sequence_rate"}
    assert len(first(Recipe.parse({**unknown, "sequence": "no_such"}, tmp_path))) == 12  # nothing to measure by


def test_a_pack_without_its_sequence_names_the_fields_there_are(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "pack", sequence="input_ids")
    with pytest.raises(SampleError, match='the sample has no field "input_ids" to pack') as caught:
        first(recipe)
    assert str(caught.value.found).startswith("fields: n, id, tokens, labels")


def test_a_sample_of_no_length_is_let_pass(tmp_path: Path) -> None:
    source = write_tokens(tmp_path, "a", [[0, 4, 0]])
    recipe = Recipe.parse({"sources": [source], "batching": {"type": "pack", "max_length": 8}, "epochs": 1}, tmp_path)
    prepare(recipe, workers=1)
    assert sorted(n for batch in Loader(recipe) for n in sizes(batch)) == [0, 0, 4]
