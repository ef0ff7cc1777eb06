"""Weights of the recipe against NeMo's rule, computed here the slow way."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import RecipeError
from playhead.recipe.nemo import ImportOptions, import_nemo
from playhead.recipe.values import Group, Source

WEIGHTS = st.one_of(st.integers(1, 10_000), st.floats(0.001, 1000, allow_nan=False))


def leaf(number: int) -> dict[str, Any]:
    return {"type": "nemo", "manifest_filepath": f"/data/set{number}.json", "name": f"n{number}"}


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> list[dict[str, Any]]:
    """An `input_cfg`: lists weighted or not, groups down to a depth."""
    counter = iter(range(10_000))

    def level(left: int) -> list[dict[str, Any]]:
        weighted = draw(st.booleans())
        entries = []
        for _ in range(draw(st.integers(1, 4))):
            is_group = left > 1 and draw(st.booleans())
            entry = {"type": "group", "input_cfg": level(left - 1)} if is_group else leaf(next(counter))
            entries.append({**entry, **({"weight": draw(WEIGHTS)} if weighted else {})})
        return entries

    return level(depth)


def depth_of(entries: list[dict[str, Any]]) -> int:
    return 1 + max((depth_of(entry["input_cfg"]) for entry in entries if "input_cfg" in entry), default=0)


def nemo_shares(entries: list[dict[str, Any]], temperatures: list[float], share: float = 1.0) -> dict[str, float]:
    """How often NeMo draws from each dataset: on every level powers of the weights, normalised; uniform without."""
    temperature, *below = temperatures or [1.0]
    if any("weight" in entry for entry in entries) and len(entries) > 1:
        powers = [float(entry["weight"]) ** temperature for entry in entries]
    else:
        powers = [1.0] * len(entries)
    found: dict[str, float] = {}
    for entry, power in zip(entries, powers, strict=True):
        own = share * power / sum(powers)
        if "input_cfg" in entry:
            found |= nemo_shares(entry["input_cfg"], below, own)
        else:
            found[entry["name"]] = own
    return found


def recipe_shares(entries: list[Source | Group], share: Fraction = Fraction(1)) -> dict[str, Fraction]:
    weights = [Fraction(str(entry.weight)) if entry.weight is not None else Fraction(1) for entry in entries]
    assert len(entries) == 1 or all(entry.weight is not None for entry in entries)
    found: dict[str, Fraction] = {}
    for entry, weight in zip(entries, weights, strict=True):
        own = share * weight / sum(weights)
        found |= recipe_shares(entry.sources, own) if isinstance(entry, Group) else {entry.name: own}
    return found


def imported_shares(folder: Path, dataset: dict[str, Any]) -> dict[str, Fraction]:
    file = folder / "config.yaml"
    file.write_text(json.dumps({"train_ds": {"batch_size": 4, "shuffle": True, **dataset}}))
    return recipe_shares(import_nemo(file, ImportOptions(base_dir=folder)).recipe.sources)


@given(entries=trees(), data=st.data())
def test_sources_are_drawn_as_often_as_nemo_draws_from_them(tmp_path_factory, entries, data):
    depth = depth_of(entries)
    number = st.floats(0, 3)
    given_temperature = data.draw(st.one_of(st.none(), number, st.lists(number, min_size=depth, max_size=depth)))
    each = [given_temperature] * depth if isinstance(given_temperature, float) else given_temperature or []
    dataset = {"input_cfg": entries}
    if given_temperature is not None:
        dataset["reweight_temperature"] = given_temperature
    found = imported_shares(tmp_path_factory.mktemp("tree"), dataset)
    expected = nemo_shares(entries, each)
    assert found.keys() == expected.keys()
    for name, share in expected.items():
        assert float(found[name]) == pytest.approx(share, rel=1e-9)


@given(entries=trees(depth=2), data=st.data())
def test_a_weight_that_is_missing_on_one_of_several_is_refused_by_its_place(tmp_path_factory, entries, data):
    entries = [{**entry, "weight": 1} for entry in entries] + [{**leaf(10_001), "weight": 2}]
    bare = data.draw(st.integers(0, len(entries) - 1))
    del entries[bare]["weight"]
    with pytest.raises(RecipeError, match=rf"^train_ds.input_cfg\[{bare}\]: has no weight, but"):
        imported_shares(tmp_path_factory.mktemp("tree"), {"input_cfg": entries})


def test_the_temperature_of_a_group_holds_for_its_own_levels(tmp_path):
    inner = [{**leaf(0), "weight": 1}, {**leaf(1), "weight": 16}]
    entries = [
        {"type": "group", "weight": 1, "input_cfg": inner, "reweight_temperature": 0.5},
        {**leaf(2), "weight": 3},
    ]
    assert imported_shares(tmp_path, {"input_cfg": entries}) == {
        "n0": Fraction(1, 20),
        "n1": Fraction(1, 5),
        "n2": Fraction(3, 4),
    }


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "much", True])
def test_a_weight_that_is_not_above_0_is_refused(tmp_path, weight):
    with pytest.raises(RecipeError, match=r"train_ds.input_cfg\[1\].weight: a weight must be a number above 0"):
        imported_shares(tmp_path, {"input_cfg": [{**leaf(0), "weight": 1}, {**leaf(1), "weight": weight}]})


def test_a_list_of_temperatures_has_one_for_each_level(tmp_path):
    with pytest.raises(RecipeError, match="2 temperatures for 1 levels"):
        imported_shares(tmp_path, {"input_cfg": [leaf(0), leaf(1)], "reweight_temperature": [1, 0.5]})


def test_a_temperature_below_0_turns_weights_around_as_in_nemo(tmp_path):
    entries = [{**leaf(0), "weight": 1e-300}, {**leaf(1), "weight": 1e300}]
    with pytest.raises(RecipeError, match="a weight must be above 0"):  # the share of the second is below any number
        imported_shares(tmp_path, {"input_cfg": entries, "reweight_temperature": -2})
    entries = [{**leaf(0), "weight": 1}, {**leaf(1), "weight": 3}]
    shares = imported_shares(tmp_path, {"input_cfg": entries, "reweight_temperature": -1})
    assert [float(share) for share in shares.values()] == pytest.approx([0.75, 0.25])
