"""`check_restore`, `check_worlds`, `check_cover`: sound streams keep the laws, and each law catches what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import broken_loaders
from deliveries import stream
from playhead import Loader, Recipe
from playhead.prepare import prepare
from playhead.testing import check_cover, check_restore, check_worlds
from playhead.verify.recipes import one_pass
from small_data import bytes_of
from verified import two_sources

BROKEN = [
    (check_restore, "skips_a_batch_after_resume", "resumed after 0 of 16 .*: it goes on 1 micro-batch too far"),
    (check_restore, "counts_prefetch_as_delivered", "resumed after 1 of 16 .*: it goes on 3 micro-batches too far"),
    (check_restore, "writes_the_state_late", "resumed after 1 of 16 .*: it goes on 1 micro-batch too early"),
    (check_restore, "ends_early_after_resume", "resumed after 0 of 16 .*: it ends 9 micro-batches too early"),
    (check_restore, "shuffles_by_chance", "other samples come"),
    (check_worlds, "broadcasts", "with world_size 2: it goes on 1 micro-batch too early"),
    (check_worlds, "has_a_state_for_each_rank", "the state after step 0 is another on rank 1 of 2"),
    (check_worlds, "skips_a_batch_after_resume", "resumed with world_size 1 after 2 steps"),
    (check_cover, "drops_a_sample", "1 of 259 rows did not come, the first row 33 of text"),
    (check_cover, "repeats_a_sample", "1 of 259 rows came more than once, the first row 33 of text"),
]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    found = two_sources(tmp_path)
    prepare(found, workers=1)
    return found


@pytest.mark.parametrize("kind", ["zip", "pack", "parts"])
def test_a_sound_stream_keeps_the_laws(kind: str, tmp_path: Path) -> None:
    recipe = stream(tmp_path, kind)
    before = bytes_of(tmp_path)
    check_restore(recipe, steps=3, world_size=2)
    check_worlds(recipe, steps=3)
    check_cover(recipe, world_size=2)
    assert bytes_of(tmp_path) == before


def test_a_stream_can_be_restored_at_its_end(tmp_path: Path) -> None:
    recipe = one_pass(two_sources(tmp_path, batching={"type": "fixed", "size": 12}))
    prepare(recipe, workers=1)
    check_restore(recipe, steps=1000)


def test_a_loader_is_made_with_options_of_ones_own(recipe: Recipe) -> None:
    check_restore(recipe, steps=2, loader=partial(Loader, workers=2, worker_kind="thread", lookahead=3))


@pytest.mark.parametrize(("law", "name", "words"), BROKEN)
def test_a_broken_loader_breaks_the_law(law: Callable[..., None], name: str, words: str, recipe: Recipe) -> None:
    def loader(recipe: Recipe, **place: int) -> Any:
        return getattr(broken_loaders, name)(recipe, workers=0, **place)

    with pytest.raises(AssertionError, match=words):
        law(recipe, loader=loader, **({} if law is check_cover else {"steps": 4}))


def test_a_map_that_is_not_repeatable_is_named_by_field_and_element(recipe: Recipe) -> None:
    count = 0

    def counts(sample: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {**sample, "count": count}

    with pytest.raises(AssertionError, match="the same samples come with other contents") as caught:
        check_restore(recipe, steps=2, loader=partial(Loader, map=counts))
    assert "field: count[0]\n" in str(caught.value)
    assert "expected value: 1\n" in str(caught.value)
    assert "usual cause: a cache" in str(caught.value)
