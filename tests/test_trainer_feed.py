"""What a trainer is fed: batches it may fetch ahead of training, and a state that does not follow them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from deliveries import LANES, seen, stream
from playhead import Loader, RecipeError
from playhead.trainer_feed import TrainerFeed


def feed_of(recipe: Any, **how: Any) -> TrainerFeed:
    return TrainerFeed(Loader(recipe, **how))


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_the_state_is_that_of_the_last_step_trained_on_whole(tmp_path: Path, ahead: int) -> None:
    recipe = stream(tmp_path, "bucket")
    plain = Loader(recipe)
    states = [plain.state_dict()]
    states += [plain.state_dict() for batch in islice(plain, 6 * LANES) if batch.is_last_in_step]
    feed = feed_of(recipe)
    for number, _ in enumerate(islice(feed, 4 * LANES + ahead)):
        if number >= ahead:
            feed.trained()
            num_trained = number - ahead + 1
            assert feed.state() == states[num_trained // LANES]
            assert feed.in_step == (num_trained % LANES != 0)


def test_what_was_fetched_and_not_trained_on_whole_comes_again(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "bucket")
    whole = [seen(batch) for batch in islice(Loader(recipe), 4 * LANES)]
    feed = feed_of(recipe)
    found = [seen(batch) for batch in islice(feed, 2 * LANES + 3)]
    for _ in range(2 * LANES + 1):
        feed.trained()
    found = found[: 2 * LANES] + [seen(batch) for batch in islice(feed, 2 * LANES)]
    assert found == whole


def test_an_epoch_after_a_round_is_the_next_round_resumed_or_not(tmp_path: Path) -> None:
    recipe = stream(tmp_path, "passes")
    loader = Loader(recipe)
    rounds = [[seen(batch) for batch in loader]]
    loader.next_round()
    rounds.append([seen(batch) for batch in loader])
    feed, resumed = feed_of(recipe), feed_of(recipe)
    assert trained_round(feed) == rounds[0]
    resumed.restore(feed.state())
    assert trained_round(feed) == rounds[1]
    assert trained_round(resumed) == rounds[1]


def trained_round(feed: TrainerFeed) -> list[Any]:
    found = []
    for batch in feed:
        found.append(seen(batch))
        feed.trained(batch.is_last_in_step)
    return found


@pytest.mark.parametrize(("lanes", "when"), [(1, "taken in the middle"), (2, "not taken at the end")])
def test_an_optimizer_step_that_is_not_the_recipes_is_refused(tmp_path: Path, lanes: int, when: str) -> None:
    feed = feed_of(stream(tmp_path, "bucket"), rank=1, world_size=2)
    assert len([*islice(feed, lanes)]) == lanes
    if lanes == 2:
        feed.trained(stepped=False)
    with pytest.raises(RecipeError, match=f"an optimizer step was {when} of step 0") as caught:
        feed.trained(stepped=lanes == 1)
    assert "one after 2 micro-batches on each rank: `lanes` is 4, and the number of ranks 2" in str(caught.value)
