"""Lengths after the map against those of the plan: a pack or a budget never overflows silently."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import SPEECH_RATE, stream, write_tokens
from playhead import Batch, Loader, Recipe, SampleError
from playhead.prepare import prepare
from playhead.read.length import actual_length, all_as_planned, check_length
from playhead.recipe.tree import leaves

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
    with pytest.raises(SampleError, match='the sample has no field "audio" to compare its length with the plan'):
        first(Recipe.parse({**recipe.to_dict(), "sequence": "audio"}, tmp_path))
    on_trust = {key: value for key, value in recipe.to_dict().items() if key != "sequence_rate"}
    on_trust["batching"] = {"type": "budget", "budget": 2}
    assert len(first(Recipe.parse({**on_trust, "sequence": "no_such"}, tmp_path))) == 12  # no rate to compare by


def test_a_pack_without_its_sequence_names_the_fields_there_are(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "pack", sequence="input_ids")
    with pytest.raises(SampleError, match='the sample has no field "input_ids" to pack') as caught:
        first(recipe)
    assert str(caught.value.found).startswith("fields: n, id, tokens, labels")


@pytest.mark.parametrize("how", [{}, {"workers": 1}, {"collate": len}], ids=["pad", "process", "collate"])
@pytest.mark.parametrize("kind", ["fixed", "budget", "bucket"])
def test_samples_without_the_sequence_field_are_an_error_that_names_the_fields_and_the_remedies(
    tmp_path: Path, kind: str, how: dict[str, Any]
) -> None:
    recipe = stream(tmp_path, kind, batching=BATCHINGS[kind], sequence="input_ids", map="loader_maps:doubled")
    with pytest.raises(SampleError) as caught, Loader(recipe, **how) as loader:
        next(iter(loader))
    error = caught.value
    assert error.problem.startswith('source "')
    assert f"({tmp_path}/" in error.problem
    assert error.problem.endswith('the sample has no field "input_ids" to compare its length with the plan')
    assert error.found == "fields: n, id, tokens, labels"
    assert "`sequence: <field>`" in str(error.fix)
    assert "`sequence: null`, which trusts the lengths" in str(error.fix)


def test_the_remedy_names_the_fields_that_are_as_long_as_planned(tmp_path: Path) -> None:
    with pytest.raises(SampleError) as caught:
        first(stream(tmp_path, "budget", sequence="token"))
    assert "(`sequence: tokens` or `sequence: labels`)" in str(caught.value.fix)


@pytest.mark.parametrize("sequence", ["id", "n"])
@pytest.mark.parametrize("kind", BATCHINGS)
def test_a_sequence_field_without_a_length_is_an_error(tmp_path: Path, kind: str, sequence: str) -> None:
    with pytest.raises(SampleError, match=f'field "{sequence}" has no length') as caught:
        first(stream(tmp_path, kind, sequence=sequence))
    assert str(caught.value.found) == f"a value of type {'str' if sequence == 'id' else 'int'}"
    assert ("sequence: null" in str(caught.value.fix)) == (kind != "pack")


@pytest.mark.parametrize("kind", ["fixed", "budget", "bucket"])
def test_lengths_are_taken_on_trust_where_there_is_no_sequence(tmp_path: Path, kind: str) -> None:
    recipe = stream(tmp_path, kind, batching=BATCHINGS[kind], sequence=None, map="loader_maps:doubled")
    assert all(sizes(batch) == [2 * n for n in batch["n"].tolist()] for batch in first(recipe))
    lists = Recipe.parse({**recipe.to_dict(), "batching": BATCHINGS["pack"], "collate": "list"}, tmp_path)
    assert all(len(sample["tokens"]) == 2 * sample["n"] for batch in first(lists) for sample in batch["samples"])


def test_sizes_of_whole_samples_in_their_files_are_not_those_of_a_field(tmp_path: Path) -> None:
    source = {**write_tokens(tmp_path, "a", [[3, 4, 5]]), "length": {"unit": "bytes"}}
    recipe = Recipe.parse({"sources": [source], "batching": {"type": "budget", "budget": 200}}, tmp_path)
    prepare(recipe, workers=1)
    assert len(first(recipe, 3)) == 3


VALUES = st.one_of(
    st.lists(st.integers(0, 9), max_size=3),
    st.integers(0, 4).map(lambda n: np.zeros((n, 2))),
    st.sampled_from([(1, 2), b"ab", "ab", None, 2, np.float32(2), np.zeros(()), {"a": 1, "b": 2}]),
)
SAMPLES = st.lists(st.tuples(VALUES, st.integers(1, 3)), min_size=1, max_size=4)
UNITS = st.sampled_from([{}, {"unit": "seconds"}, {"unit": "bytes"}, {"unit": "bytes", "field": None}])


@given(found=SAMPLES, unit=UNITS, rate=st.sampled_from([None, 1000, 1500]), pack=st.booleans(), name=st.booleans())
def test_checking_all_lengths_at_once_agrees_with_checking_each(
    found: list[Any], unit: dict[str, Any], rate: float | None, pack: bool, name: bool
) -> None:
    """Where the quick check is content, so is the exact one, and it leaves every sample as it is."""
    source = {"name": "a", "path": "a.jsonl", "length": {"field": "n", **unit}}
    batching = BATCHINGS["pack" if pack else "budget"]
    options = {} if rate is None else {"sequence_rate": rate}
    recipe = Recipe.parse({"sources": [source], "batching": batching, **options}, "/data")
    (leaf,) = leaves(recipe)
    samples = [{"tokens" if name else "other": value} for value, _ in found]
    planned = [length for _, length in found]

    def passes(sample: dict[str, Any], length: int) -> bool:
        try:
            return check_length(sample, length, recipe, leaf, None, 0) is sample  # type: ignore[arg-type]
        except SampleError:
            return False

    each = [passes(sample, length) for sample, length in zip(samples, planned, strict=True)]
    at_once = all_as_planned(samples, planned, recipe, leaf)
    assert not at_once or all(each)
    if all(each) and all(actual_length(sample, recipe, leaf) != 0 for sample in samples):
        assert at_once


def test_a_sample_of_no_length_is_let_pass(tmp_path: Path) -> None:
    source = write_tokens(tmp_path, "a", [[0, 4, 0]])
    recipe = Recipe.parse({"sources": [source], "batching": {"type": "pack", "max_length": 8}, "epochs": 1}, tmp_path)
    prepare(recipe, workers=1)
    assert sorted(n for batch in Loader(recipe) for n in sizes(batch)) == [0, 0, 4]
