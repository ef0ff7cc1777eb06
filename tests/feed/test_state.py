"""States: small, plain, and refused with a reason where they do not fit."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import FIXED, recipe_in, write_text
from deliveries import stream, write_tokens
from playhead import Loader, Recipe, RecipeError, StateError, WorldSizeError
from playhead.feed.state import PayloadWarning, Position, restore, save
from playhead.feed.totals import nothing_yet
from playhead.order.exhaustion import Mixture, blend_key, pieces_of
from playhead.plan.chain import Link
from playhead.plan.cursor import Cursor, Place
from playhead.plan.plan import Plan
from playhead.plan.segments import amended, counters_before, segment_at, window_draws
from playhead.prepare import prepare
from playhead.resolve import open_plan
from playhead.resolve.fingerprints import next_link


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return stream(tmp_path_factory.mktemp("recipe"), "bucket")


@pytest.fixture(scope="module")
def state(recipe: Recipe) -> dict[str, Any]:
    loader = Loader(recipe)
    list(islice(loader, 6))
    return loader.state_dict()


def changed(recipe: Recipe, **fields: Any) -> Recipe:
    found = Recipe.parse({**recipe.to_dict(), **fields}, ".")
    prepare(found, workers=1)
    return found


def test_a_state_is_plain_json_and_loading_it_changes_nothing(recipe: Recipe, state: dict[str, Any]) -> None:
    again = json.loads(json.dumps(state))
    assert again == state
    loader = Loader(recipe)
    loader.load_state_dict(again)
    assert json.dumps(loader.state_dict()) == json.dumps(state)
    state_of_start = Loader(recipe).state_dict()
    loader.load_state_dict(state_of_start)
    assert loader.state_dict() == state_of_start


@pytest.mark.parametrize("count", [1, 12, 16, 17, 1000])
def test_a_state_is_small_however_many_sources_there_are_and_far_into_the_run(recipe: Recipe, count: int) -> None:
    plan = open_plan(recipe)
    (first,) = plan.streams
    many = replace(
        first,
        source_names=tuple(f"source-{i}" for i in range(count)),
        orders=first.orders[:1] * count,
        lengths_of=first.lengths_of[:1] * count,
        outputs_of=first.outputs_of[:1] * count,
    )
    plan = replace(plan, streams=(many,))
    cursor = Cursor(10**9, (Place(10**7, 10**3),), 10**9, 2**64 - 1)
    counts = np.broadcast_to([10**10, 10**13, 10**12], nothing_yet(plan).shape)
    state = save(Position(cursor, 3, counts), plan, "0" * 16)
    assert len(json.dumps(state)) <= 1024


@pytest.mark.parametrize("count", [3, 20])
def test_totals_are_told_by_source_however_many_there_are(tmp_path: Path, count: int) -> None:
    recipe = recipe_in(tmp_path, *(write_tokens(tmp_path, f"s{i}", [[3, 4, 5]]) for i in range(count)), lanes=2)
    prepare(recipe, workers=1)
    loader = Loader(recipe)
    seen = Counter(name for batch in islice(loader, 30) for name in batch.sources)
    totals = loader.totals()
    assert {name: found.samples for name, found in totals.items() if name != "all"} == seen
    assert totals["all"].samples == 120
    assert totals["all"].length == sum(found.length for name, found in totals.items() if name != "all")


@pytest.mark.parametrize("policy", ["stop_first", "stop_all", "drop"])
def test_totals_of_many_sources_count_every_round(tmp_path: Path, policy: str) -> None:
    """They are worked out from the plan, where a later round begins each source at an epoch of its own."""
    lengths = {f"s{i}": [3 + i, 4, 5 + 2 * i, 9, 1 + i][: 3 + i % 3] for i in range(15)}
    sources = [write_tokens(tmp_path, name, [found]) for name, found in lengths.items()]
    recipe = recipe_in(tmp_path, *sources, lanes=2, exhaustion=policy)
    prepare(recipe, workers=1)
    loader = Loader(recipe)
    seen, length = Counter(), Counter()
    for _ in range(3):
        for batch in loader:
            if not batch.idle:
                seen.update(batch.sources)
                for name, row in zip(batch.sources, batch.rows.tolist(), strict=True):
                    length[name] += lengths[name][row]
        totals = loader.totals()
        del totals["all"]
        assert seen == Counter({name: found.samples for name, found in totals.items()})
        assert length == Counter({name: found.length for name, found in totals.items()})
        loader.next_round()
    assert len(seen) > 10


def test_no_source_may_have_the_name_of_the_sum(tmp_path: Path) -> None:
    """It would be missing from the totals, or the sum would."""
    named = write_text(tmp_path, "all", [[3] * 9])
    other = write_text(tmp_path, "b", [[3] * 9])
    with pytest.raises(RecipeError, match=r'sources\[1\] "all": this name is reserved'):
        recipe_in(tmp_path, other, named)
    with pytest.raises(RecipeError, match=r'evaluation.dev.sources\[0\] "all": this name is reserved'):
        recipe_in(tmp_path, other, evaluation={"dev": {"sources": [named], "batching": FIXED}})


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"seed": 8}, "seed"),
        ({"lanes": 8}, "lanes"),
        ({"window_size": 96}, "window_size"),
        ({"batching": {"type": "bucket", "num": 2, "budget": 120}}, "batching"),
        ({"temperature": 0.5, "weights_in": "samples"}, "weights and policy"),
    ],
)
def test_a_state_of_another_recipe_is_refused_with_what_changed(
    recipe: Recipe, state: dict[str, Any], fields: dict[str, Any], word: str
) -> None:
    loader = Loader(changed(recipe, **fields))
    with pytest.raises(StateError) as caught:
        loader.load_state_dict(state)
    error = caught.value
    assert error.problem.startswith("the state belongs to another stream: ")
    assert word in error.problem
    assert str(error.found).startswith("saved ")
    assert word in str(error.found)
    assert str(error.expected).startswith("current ")
    assert "start a new run" in str(error.fix)
    assert loader.state_dict()["step"] == 0  # as before


@pytest.fixture(scope="module")
def chained(recipe: Recipe) -> list[Plan]:
    """A plan, amended once at window 3 (lanes and order), and amended again at window 5."""
    plans = [open_plan(recipe)]
    for window, lanes in ((3, 2), (5, 8)):
        (before,) = plans[-1].streams
        rows = np.array([order.num_rows for order in before.orders])
        mixture = Mixture(np.arange(2), (Fraction(3), Fraction(1)), rows, blend_key(7, before.name, len(plans)))
        first_draw, _ = window_draws(segment_at(before, window), window)
        pieces = pieces_of(mixture, "repeat", None, first_draw, counters_before(before, window))
        after = amended(before, window, 0, pieces=pieces, lanes=lanes, balance=1)
        link = next_link(plans[-1].chain[-1], {"lanes": lanes}, (window,))
        plans.append(replace(plans[-1], streams=(after,), chain=(*plans[-1].chain, link), _windows={}))
    return plans


def cursors(plan: Plan, stop: int) -> list[Cursor]:
    """The cursors of all steps before a window."""
    found = [plan.start()]
    while (after := plan.advance(found[-1])) is not None and after.places[0].window < stop:
        found.append(after)
    return found


def saved_at(cursor: Cursor, plan: Plan, lanes_done: int = 0) -> dict[str, Any]:
    return save(Position(cursor, lanes_done, nothing_yet(plan)), plan, "0" * 16)


def test_each_fingerprint_of_the_chain_depends_on_all_before_it(chained: list[Plan]) -> None:
    first, second, third = (link.fingerprint for link in chained[-1].chain)
    assert [plan.fingerprint for plan in chained] == [first, second, third]
    assert len({first, second, third, next_link(chained[0].chain[0], {"lanes": 8}, (5,)).fingerprint}) == 4


def test_a_state_loads_under_every_chain_that_has_its_fingerprint_in_force_at_its_window(chained: list[Plan]) -> None:
    """Saved with or without an amendment that is still to come, it goes on at the same place."""
    begins = [Place(3), Place(5), Place(99)]
    for number, plan in enumerate(chained):
        for cursor in cursors(plan, 7):
            (place,) = cursor.places
            state = saved_at(cursor, plan)
            link = min(number, (place.window >= 3) + (place.window >= 5))
            assert state["plan"] == chained[-1].chain[link].fingerprint
            for other, now in enumerate(chained):
                still_to_come = (place.window, place.step) <= (begins[number].window, 0)
                if link <= other <= number or (other > number and still_to_come):
                    assert restore(state, now, "0" * 16).cursor == cursor
                else:
                    with pytest.raises(StateError, match="amendment"):
                        restore(state, now, "0" * 16)


def test_a_state_goes_on_under_an_amendment_as_if_it_had_always_been_there(chained: list[Plan]) -> None:
    plain, _, twice = chained
    before = cursors(plain, 3)[-1]
    at = restore(saved_at(before, plain), twice, "0" * 16).cursor
    found = [step.receipt for step, _ in islice(twice.steps(at), 40)]
    assert found == [step.receipt for step, _ in islice(twice.steps(), before.step, before.step + 40)]
    assert found != [step.receipt for step, _ in islice(plain.steps(at), 40)]


def test_a_state_past_the_start_of_an_amendment_that_it_does_not_know_is_refused(chained: list[Plan]) -> None:
    late = [cursor for cursor in cursors(chained[0], 5) if cursor.places[0].window == 3]
    plain, once = chained[0], chained[1]
    assert restore(saved_at(late[0], plain), once, "0" * 16).cursor == late[0]  # its window is still to begin
    for cursor, lanes_done in ((late[0], 1), (late[1], 0), (late[-1], 0)):
        with pytest.raises(StateError) as caught:
            restore(saved_at(cursor, plain, lanes_done), once, "0" * 16)
        error = caught.value
        assert error.problem == "the state was saved with no amendments, where the recipe has 1 amendment in force"
        assert str(error.found) == f"saved   fingerprint {plain.fingerprint} at window 3"
        assert str(error.expected) == f"current fingerprint {once.fingerprint}; amendment 1 begins at window 3"
        assert str(error.fix) == "resume from a state saved before window 3, or let amendment 1 begin later"


def test_a_state_of_an_amendment_that_was_removed_or_moved_is_refused(chained: list[Plan]) -> None:
    plain, once, _ = chained
    cursor = cursors(once, 5)[-1]
    with pytest.raises(StateError, match=r"another stream: .*amendments changed"):
        restore(saved_at(cursor, once), plain, "0" * 16)
    moved = replace(once, chain=(once.chain[0], Link(once.fingerprint, (6,))))
    with pytest.raises(StateError, match="saved with 1 amendment, where the recipe has no amendments") as caught:
        restore(saved_at(cursor, once), moved, "0" * 16)
    assert caught.value.fix == "let amendment 1 begin where it did when the state was saved"


def test_other_lengths_of_the_same_rows_are_another_stream(tmp_path: Path) -> None:
    source = write_tokens(tmp_path, "a", [[3, 4, 5] * 4])
    recipe = Recipe.parse({"sources": [source], "batching": FIXED, "window_size": 8}, tmp_path)
    prepare(recipe, workers=1)
    state = Loader(recipe).state_dict()
    write_tokens(tmp_path, "a", [[4, 3, 5] * 4])
    prepare(recipe, workers=1)
    with pytest.raises(StateError, match="another stream: lengths of the samples changed"):
        Loader(recipe).load_state_dict(state)


def test_another_map_or_collation_is_a_warning_at_the_line_that_loads(recipe: Recipe, state: dict[str, Any]) -> None:
    options = (
        {"map": "loader_maps:slow"},
        {"pad_to": 64},
        {"fields": ["tokens"]},
        {"decode": False},
        {"dtypes": {"n": "int32"}},
        {"masks": "never"},
    )
    for fields in options:
        loader = Loader(changed(recipe, **fields))
        with pytest.warns(PayloadWarning, match="another map, collate or decode setting") as caught:
            loader.load_state_dict(state)
        assert caught[0].filename == __file__
        assert loader.state_dict()["step"] == state["step"]
    with pytest.warns(PayloadWarning):
        Loader(recipe, map=lambda sample: sample).load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loader(changed(recipe, cache_dir=recipe.cache_dir), workers=3).load_state_dict(state)


@pytest.mark.parametrize("version", [0, 1, "3"])
def test_a_state_of_another_version_is_refused(recipe: Recipe, state: dict[str, Any], version: Any) -> None:
    with pytest.raises(StateError, match="saved by another version of Playhead") as caught:
        Loader(recipe).load_state_dict({**state, "version": version})
    assert caught.value.found == f"state version {version}"
    with pytest.raises(StateError, match="saved by another version of Playhead"):
        Loader(recipe).load_state_dict({"version": 7, "something": "new"})


@pytest.mark.parametrize("key", ["plan", "places", "totals", "receipt", "lanes_done", "version"])
def test_a_state_cut_short_is_refused(recipe: Recipe, state: dict[str, Any], key: str) -> None:
    with pytest.raises(StateError, match="not a complete Playhead state"):
        Loader(recipe).load_state_dict({name: value for name, value in state.items() if name != key})


@pytest.mark.parametrize(
    "change",
    [
        {"places": [[0, 0]]},
        {"totals": [[1, 2, 3], [4, 5, 6]]},
        {"receipt": "0123456789abcdef"},
        {"lanes_done": 0},
        {"step": 2},
        {"step": 2**70},
        {"turn": -1},
        {"round": 1},
        {"delivered": 7},
        {"payload": "0" * 16},
        {"about": {}},
        {"checksum": "0" * 16},
        {"checksum": ""},
    ],
)
def test_an_edited_state_is_refused(recipe: Recipe, state: dict[str, Any], change: dict[str, Any]) -> None:
    assert all(state[name] != value for name, value in change.items())
    loader = Loader(recipe)
    with pytest.raises(StateError, match=r"checksum does not match|not a complete Playhead state"):
        loader.load_state_dict({**state, **change})
    assert loader.state_dict()["step"] == 0


def test_a_state_without_its_checksum_or_with_more_than_it_had_is_refused(
    recipe: Recipe, state: dict[str, Any]
) -> None:
    with pytest.raises(StateError, match="checksum does not match") as caught:
        Loader(recipe).load_state_dict({name: value for name, value in state.items() if name != "checksum"})
    assert caught.value.found == "checksum missing"
    with pytest.raises(StateError, match="not a complete Playhead state"):
        Loader(recipe).load_state_dict({**state, "extra": 1})


def test_the_state_after_a_batch_of_another_loader_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    """Also of one over the same recipe: the two stand at places of their own."""
    loader, same = Loader(recipe), Loader(recipe)
    other = Loader(stream(tmp_path, "fixed"))
    batch = next(iter(loader))
    for stranger in (same, other):
        with pytest.raises(StateError, match="delivered by another loader"):
            stranger.state_dict(after=batch)
    assert loader.state_dict(after=batch) == loader.state_dict()


@pytest.mark.parametrize("state", [None, "text", [], 3, {}])
def test_what_is_no_state_at_all_is_refused(recipe: Recipe, state: Any) -> None:
    with pytest.raises(StateError, match="not a complete Playhead state"):
        Loader(recipe).load_state_dict(state)


def test_ranks_that_cannot_share_the_lanes_are_told_which_can(recipe: Recipe) -> None:
    with pytest.raises(WorldSizeError) as caught:
        Loader(recipe, rank=0, world_size=3)
    assert caught.value.expected == "a world size that divides 4: 1, 2, 4"
    with pytest.raises(WorldSizeError, match="rank 2 of 2 ranks does not exist"):
        Loader(recipe, rank=2, world_size=2)


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 1},
        {"epochs": 3},
        {"epochs": 2, "window_size": 32},
        {"exhaustion": "stop_first"},
        {"exhaustion": "drop"},
    ],
)
def test_the_length_of_a_finite_loader_is_the_number_of_its_batches(
    tmp_path: Path, fields: dict[str, Any], world_size: int
) -> None:
    sources = [write_text(tmp_path, "a", [[3] * 37]), write_text(tmp_path, "b", [[3] * 20])]
    dev = {"sources": sources, "batching": {"type": "fixed", "size": 3}}
    recipe = recipe_in(tmp_path, *sources, lanes=4, sequence=None, evaluation={"dev": dev}, **fields)
    prepare(recipe, workers=1)
    for split in (None, "dev"):
        for rank in range(world_size):
            loader = Loader(recipe, split=split, rank=rank, world_size=world_size)
            assert len(loader) == sum(1 for _ in loader)


@pytest.mark.parametrize("kind", ["fixed", "bucket", "pack", "zip", "stop_all"])
def test_a_length_that_only_planning_would_tell_is_a_type_error(tmp_path: Path, kind: str) -> None:
    loader = Loader(stream(tmp_path, kind))
    with pytest.raises(TypeError, match="known only for a finite stream of fixed batches"):
        len(loader)


def test_the_state_after_what_is_not_a_batch_is_refused(recipe: Recipe) -> None:
    loader = Loader(recipe)
    batch = next(iter(loader))
    with pytest.raises(StateError, match="needs a Batch") as caught:
        loader.state_dict(after=dict(batch))  # type: ignore[arg-type]
    assert caught.value.found == "a dict"


@pytest.mark.parametrize("change", [{"payload": "\ud800"}, {"about": {"x": object()}}])
def test_a_state_that_no_json_can_hold_is_refused(
    recipe: Recipe, state: dict[str, Any], change: dict[str, Any]
) -> None:
    with pytest.raises(StateError, match="not a complete Playhead state"):
        Loader(recipe).load_state_dict({**state, **change})


def test_of_states_loaded_before_and_after_the_ranks_are_known_the_last_counts(tmp_path: Path) -> None:
    """An evaluation set without lanes is planned once its ranks are known; a broken state is refused at once."""
    source = write_tokens(tmp_path, "a", [[5] * 23])
    dev = {"sources": [source], "batching": {"type": "fixed", "size": 3}}
    recipe = recipe_in(tmp_path, source, evaluation={"dev": dev})
    prepare(recipe, workers=1)
    whole = Loader(recipe, split="dev", rank=0, world_size=1)
    states = [whole.state_dict(after=batch) for batch in whole]
    loader = Loader(recipe, split="dev")
    with pytest.raises(StateError, match="not a complete Playhead state"):
        loader.load_state_dict({"junk": 1})
    loader.load_state_dict(states[0])
    assert loader.rank == 0
    loader.load_state_dict(states[4])
    assert loader.state_dict() == states[4]
    assert len([*loader]) == len(states) - 5
