"""Weights as written in recipes over real files, against exact arithmetic and against the stream itself."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from corpora import lengths_of, named_rows, plan_in, recipe_in, take, write_text
from playhead.errors import RecipeError
from playhead.order.shares import SHARE_UNITS
from playhead.plan.plan import Plan
from playhead.prepare import prepare
from playhead.recipe.tree import branches
from playhead.recipe.values import Recipe
from playhead.resolve import map_tables
from playhead.resolve.weights import sample_weights

PACK = {"type": "pack", "max_length": 400}


def weights_of(recipe: Recipe) -> dict[str, Fraction]:
    """The resolved weight of each source by name, as shares of 1."""
    prepare(recipe, workers=1)
    (branch,) = branches(recipe)
    weights = sample_weights(branch, map_tables(recipe))
    names = {leaf.path: leaf.source.name for leaf in branch.leaves()}
    total = sum(weights.values(), Fraction(0))
    return {names[path]: weight / total for path, weight in weights.items()}


def planned_shares(plan: Plan) -> dict[str, Fraction]:
    """The shares the plan really blends by."""
    (stream,) = plan.streams
    shares = stream.segments[0].pieces[0].blend.shares.tolist()
    return {name: Fraction(share, SHARE_UNITS) for name, share in zip(stream.source_names, shares, strict=True)}


def test_nested_groups_multiply_their_weights_and_order_by_name(tmp_path: Path) -> None:
    a, b, c, d = (write_text(tmp_path, name, [[5] * 10]) for name in "zyxw")
    inner = {"name": "inner", "weight": 1, "sources": [{**b, "weight": 0.1}, {**c, "weight": 0.3}]}
    outer = {"name": "outer", "weight": 3, "sources": [inner, {**a, "weight": 4}]}
    recipe = recipe_in(tmp_path, outer, {**d, "weight": 1})
    expected = {
        "z": Fraction(3, 4) * Fraction(4, 5),
        "y": Fraction(3, 4) * Fraction(1, 5) * Fraction(1, 4),
        "x": Fraction(3, 4) * Fraction(1, 5) * Fraction(3, 4),
        "w": Fraction(1, 4),
    }
    assert weights_of(recipe) == expected
    planned = planned_shares(plan_in(tmp_path, outer, {**d, "weight": 1}))
    assert list(planned) == ["w", "x", "y", "z"]
    assert all(abs(planned[name] - expected[name]) <= Fraction(1, SHARE_UNITS) for name in expected)


def test_without_weights_members_share_by_their_selected_rows(tmp_path: Path) -> None:
    a = write_text(tmp_path, "a", [[5] * 30, [7] * 10])
    b = {**write_text(tmp_path, "b", [[9] * 20]), "keep": {"lang": ["en"]}}
    group = {"name": "g", "sources": [b]}
    assert weights_of(recipe_in(tmp_path, a, group)) == {"a": Fraction(4, 5), "b": Fraction(1, 5)}


def test_a_group_without_weights_counts_with_all_its_members(tmp_path: Path) -> None:
    a, b, c = (write_text(tmp_path, name, [[5] * count]) for name, count in zip("abc", (10, 20, 30), strict=True))
    # Inside the group the weights decide, however many rows there are.
    group = {"name": "g", "sources": [{**b, "weight": 3}, {**c, "weight": 2}]}
    shares = weights_of(recipe_in(tmp_path, a, group))
    assert shares == {"a": Fraction(1, 6), "b": Fraction(3, 6), "c": Fraction(2, 6)}


def test_by_length_without_weights_every_row_is_as_likely(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", [[100] * 10]), write_text(tmp_path, "b", [[10] * 30])
    shares = weights_of(recipe_in(tmp_path, a, b, weights_in="length", batching=PACK))
    assert shares == {"a": Fraction(1, 4), "b": Fraction(3, 4)}


@pytest.mark.parametrize("temperature", [0.5, 0.3, 1, 2])
def test_a_temperature_is_a_power_of_the_sizes(tmp_path: Path, temperature: float) -> None:
    sizes = {"a": 16, "b": 100, "c": 37}
    sources = [write_text(tmp_path, name, [[5] * size]) for name, size in sizes.items()]
    shares = weights_of(recipe_in(tmp_path, *sources, temperature=temperature))
    powers = {name: np.longdouble(size) ** np.longdouble(temperature) for name, size in sizes.items()}
    for name, power in powers.items():
        assert float(shares[name]) == pytest.approx(float(power / sum(powers.values())), rel=1e-12)
    if temperature == 0.5:
        assert shares["a"] / shares["b"] == Fraction(4, 10)


def test_a_temperature_inside_a_group_stays_inside(tmp_path: Path) -> None:
    a, b, c = (write_text(tmp_path, name, [[5] * size]) for name, size in (("a", 4), ("b", 16), ("c", 50)))
    group = {"name": "g", "weight": 1, "temperature": 0.5, "sources": [a, b]}
    assert weights_of(recipe_in(tmp_path, group, {**c, "weight": 1})) == {
        "a": Fraction(1, 6),
        "b": Fraction(2, 6),
        "c": Fraction(1, 2),
    }


def test_weights_of_samples_are_the_shares_of_the_samples(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", lengths_of(1, 2, 50)), write_text(tmp_path, "b", [[300] * 40])
    plan = plan_in(tmp_path, {**a, "weight": 0.7}, {**b, "weight": 0.3}, lanes=2)
    # 16 windows of 1,600 draws are 25 blocks of 1,024: there counts are within one of exact.
    counts = Counter(name for name, _, _ in named_rows(plan, take(plan, 3200)))
    assert counts.total() == 25_600
    assert abs(counts["a"] - 17_920) <= 1


@pytest.mark.parametrize("batching", [PACK, {"type": "budget", "budget": 900}])
def test_weights_of_length_are_the_shares_of_the_length_delivered(tmp_path: Path, batching: dict) -> None:
    a, b = write_text(tmp_path, "a", lengths_of(1, 2, 60)), write_text(tmp_path, "b", [[350, 250] * 15, [400]])
    recipe = {"weights_in": "length", "batching": batching, "lanes": 2}
    plan = plan_in(tmp_path, {**a, "weight": 0.2}, {**b, "weight": 0.8}, **recipe)
    lengths = np.zeros(2)
    for step in take(plan, 2000):
        for batch in step.micro_batches:
            lengths += np.bincount(batch.picks.source, batch.lengths, minlength=2)
    assert lengths[0] / lengths.sum() == pytest.approx(0.2, rel=0.01)


def test_overlong_samples_dropped_at_selection_do_not_bend_the_weights(tmp_path: Path) -> None:
    a = write_text(tmp_path, "a", [[10] * 40 + [100_000] * 5])
    b = write_text(tmp_path, "b", [[40] * 40])
    batching = {"type": "pack", "max_length": 100, "overlong": "drop"}
    recipe = {"weights_in": "length", "batching": batching}
    plan = plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 1}, **recipe)
    assert float(planned_shares(plan)["a"]) == pytest.approx(0.8, abs=1e-9)


def test_a_share_below_one_sample_in_the_largest_block_is_refused(tmp_path: Path) -> None:
    a, b = (write_text(tmp_path, name, [[5] * 10]) for name in "ab")
    plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 0.000001})
    with pytest.raises(RecipeError) as caught:
        plan_in(tmp_path, {**a, "weight": 1}, {"name": "g", "weight": 1e-7, "sources": [b]})
    assert caught.value.problem == 'sources[1].sources[0] "b": its weight rounds to no sample in a block'
    assert caught.value.found == "1e-05 % of the samples of main"
    assert caught.value.expected == "at least 1 sample in 1,048,576, that is 0.00010 %"
    assert "raise its weight" in str(caught.value.fix)


def test_a_pass_takes_small_sources_of_any_size(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", [[5] * 10]), write_text(tmp_path, "b", [[5]])
    plan = plan_in(tmp_path, a, b, epochs=2)
    assert len(named_rows(plan, take(plan))) == 22


def test_a_sub_stream_too_rare_for_a_step_is_refused(tmp_path: Path) -> None:
    groups = [
        {
            "name": f"{name}s",
            "batching": {"type": "fixed", "size": 2},
            "sources": [write_text(tmp_path, name, [[5] * 9])],
        }
        for name in "ab"
    ]
    with pytest.raises(RecipeError, match=r"fuse\.bs: its weight rounds to no step in a block"):
        plan_in(tmp_path, *groups, fuse={"as": 1, "bs": 1e-8})


def test_sources_of_no_length_at_all_can_be_weighted_by_length(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", [[0] * 4]), write_text(tmp_path, "b", [[0] * 12])
    plan = plan_in(tmp_path, a, b, weights_in="length", batching=PACK)
    assert sum(planned_shares(plan).values()) == 1
