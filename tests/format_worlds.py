"""What any number of ranks deliver of a recipe, and what a resume on another number delivers of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deliveries import Seen, numpy_loader, rounds
from playhead.prepare import prepare
from playhead.recipe.values import Recipe

LANES = 20
WORLDS = (1, 2, 4, 5)


def recipe_of(folder: Path, source: Mapping[str, Any], **fields: Any) -> Recipe:
    """A prepared recipe of one source, one pass, 20 lanes."""
    values = {"sources": [{"name": "s", **source}], "batching": {"type": "fixed", "size": 2}, "seed": 5}
    values |= {"lanes": LANES, "epochs": 1, "cache_dir": "cache"}
    recipe = Recipe.parse(values | fields, base_dir=folder)
    prepare(recipe, workers=1)
    return recipe


def check_worlds(recipe: Recipe, num_rows: int) -> None:
    """Laws: ranks are disjoint and complete for every world size, alike bit for bit; so is a resume on another."""
    make = numpy_loader(recipe)
    alone = _by_lane(rounds(make, 1))
    picks = [pick for batch in alone.values() if not batch.idle for pick in batch.picks]
    assert len(picks) == len(set(picks)) == num_rows
    for world_size in WORLDS[1:]:
        assert _by_lane(rounds(make, world_size)) == alone
    (begun,) = rounds(make, 1)
    at = LANES  # the end of the first step
    before, state, _ = zip(*begun[:at], strict=True)
    rest = {place: batch for place, batch in alone.items() if place not in {(seen.step, seen.lane) for seen in before}}
    assert rest
    for world_size in WORLDS[1:]:
        assert _by_lane(rounds(make, world_size, state[-1])) == rest


def check_processes(recipe: Recipe) -> None:
    """Laws: worker processes deliver what this one does, also from the middle of a step on, on another world size."""
    alone = rounds(numpy_loader(recipe), 1)
    batches, states, _ = zip(*alone[0], strict=True)
    assert [seen for seen, _, _ in rounds(numpy_loader(recipe, workers=2), 1)[0]] == list(batches)
    at = LANES + LANES // 2
    assert len(batches) > at
    rest = {(seen.step, seen.lane): seen._replace(is_last=False) for seen in batches[at:]}
    assert _by_lane(rounds(numpy_loader(recipe, workers=1), 2, states[at - 1])) == rest


def _by_lane(dealt: list[list[tuple[Seen, str, dict[str, Any]]]]) -> dict[tuple[int, int], Seen]:
    found = {(seen.step, seen.lane): seen._replace(is_last=False) for batches in dealt for seen, _, _ in batches}
    assert len(found) == sum(map(len, dealt))
    return found
