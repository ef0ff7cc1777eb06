"""The laws of delivery, on real files: what is delivered depends on the recipe and the state alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deliveries import (
    BATCHINGS,
    KINDS,
    LANES,
    Seen,
    deliver,
    numpy_loader,
    rounds,
    saved,
    seen,
    stream,
    woven,
    write_tokens,
)
from playhead import Loader, PlayheadError, Recipe, StateError
from playhead.prepare import prepare

NUM_BATCHES = 40


class Whole(NamedTuple):
    """A stream delivered without interruption: its batches, the state and the totals after each."""

    kind: str
    recipe: Recipe
    split: str | None
    batches: list[Seen]
    states: list[str]
    totals: list[dict[str, Any]]

    def loader(self, rank: int = 0, world_size: int = 1, **how: Any) -> Loader:
        return Loader(self.recipe, split=self.split, rank=rank, world_size=world_size, **how)

    def resumed(self, after: int, **how: Any) -> Loader:
        loader = self.loader(**how)
        loader.load_state_dict(json.loads(self.states[after]))
        return loader


def evaluated(folder: Path) -> Recipe:
    train = write_tokens(folder, "train", [[5] * 10])
    bucket = {"type": "bucket", "num": 3, "budget": 26}
    dev = {"sources": [write_tokens(folder, "dev", [[9, 4, 7, 12] * 9 + [3]])], "batching": bucket}
    fields = {"sources": [train], "batching": BATCHINGS["fixed"], "map": "loader_maps:augmented"}
    recipe = Recipe.parse({**fields, "evaluation": {"dev": {**dev, "lanes": LANES}}}, folder)
    prepare(recipe, workers=1)
    return recipe


@pytest.fixture(scope="module", params=[*KINDS, "evaluation"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    kind = request.param
    folder = tmp_path_factory.mktemp(kind.replace(" ", "-"))
    split = "dev" if kind == "evaluation" else None
    recipe = evaluated(folder) if split else stream(folder, kind)
    found = [*zip(*deliver(Loader(recipe, split=split), NUM_BATCHES), strict=True)]
    return Whole(kind, recipe, split, *(list(column) for column in found))


def test_a_resume_after_any_batch_delivers_the_rest_bit_for_bit(whole: Whole) -> None:
    last = len(whole.batches) - 1
    used = whole.loader()  # one that has been elsewhere remembers nothing of it
    for after in reversed(range(last)):
        count = None if after in (1, last // 2) else 5
        loader = whole.resumed(after) if after % 3 == 0 else used
        loader.load_state_dict(json.loads(whole.states[after]))
        assert saved(loader) == whole.states[after]
        assert loader.totals() == whole.totals[after]
        until = last + 1 if count is None else min(after + 1 + count, last + 1)
        for i, (batch, state, totals) in zip(range(after + 1, until), deliver(loader), strict=False):
            assert batch == whole.batches[i]
            assert state == whole.states[i]
            assert totals == whole.totals[i]


def test_a_resume_of_a_resume_delivers_the_rest_bit_for_bit(whole: Whole) -> None:
    for after in range(0, len(whole.batches) - 4, 7):
        (_, state, _) = [*deliver(whole.resumed(after), 1)][-1]
        second = whole.loader()
        second.load_state_dict(json.loads(state))
        (_, state, _) = [*deliver(second, 2)][-1]
        third = whole.loader()
        third.load_state_dict(json.loads(state))
        assert next(deliver(third, 1))[:2] == (whole.batches[after + 4], whole.states[after + 4])


@pytest.mark.parametrize("world_size", [2, 4])
def test_every_world_size_delivers_the_same_and_every_rank_has_the_same_state(whole: Whole, world_size: int) -> None:
    count = len(whole.batches) // world_size
    dealt = rounds(whole.loader, world_size, num_batches=count)
    assert woven(dealt) == whole.batches[: count * world_size]
    for i in range(count):
        at = (i + 1) * world_size - 1
        assert {rank[i][1] for rank in dealt} == {whole.states[at]}
        assert [rank[i][2] for rank in dealt] == [whole.totals[at]] * world_size


def test_a_state_from_inside_a_step_resumes_on_the_world_sizes_that_fit_and_names_them(whole: Whole) -> None:
    for after in range(0, len(whole.batches) - LANES, 5):
        done = (after + 1) % LANES
        for world_size in (1, 2, 4):
            if gcd(LANES, done) % world_size == 0:
                make: Callable[[int, int], Loader] = whole.loader
                found = woven(rounds(make, world_size, whole.states[after], LANES // world_size))
                assert found == whole.batches[after + 1 : after + 1 + LANES]
                continue
            loader = whole.loader(0, world_size)
            with pytest.raises(StateError) as caught:
                loader.load_state_dict(json.loads(whole.states[after]))
            fitting = [world for world in (1, 2, 4) if gcd(LANES, done) % world == 0]
            assert caught.value.expected == f"a world size of {', '.join(map(str, fitting))}"
            assert caught.value.found == f"{done} of 4 lanes of step {whole.batches[after + 1].step} are done"


def test_steps_and_lanes_come_in_order_and_only_the_last_lane_ends_a_step(whole: Whole) -> None:
    places = [(batch.step, batch.lane) for batch in whole.batches]
    assert places == [(i // LANES, i % LANES) for i in range(len(places))]
    assert all(batch.is_last == (batch.lane == LANES - 1) for batch in whole.batches)
    states = [json.loads(state) for state in whole.states]
    assert [state["lanes_done"] for state in states] == [(i + 1) % LANES for i in range(len(states))]
    assert all(new["receipt"] == old["receipt"] for old, new in pairwise(states) if new["lanes_done"])
    assert len({state["receipt"] for state in states}) == len(states) // LANES + 1
    assert max(map(len, whole.states)) <= 1024


def test_idle_batches_weigh_nothing_and_repeat_another(whole: Whole) -> None:
    for batch in whole.batches:
        payload = dict(batch.payload)
        if batch.idle:
            assert batch.num_samples == 0
            assert not any(payload["weights"][2])
            twins = [other for other in whole.batches if other.step == batch.step and not other.idle]
            assert batch.picks in [twin.picks for twin in twins]
        else:
            assert batch.num_samples == len(batch.picks)
    if whole.kind == "passes":
        assert any(batch.idle for batch in whole.batches)


def test_totals_are_what_a_slow_count_over_the_batches_gives(whole: Whole) -> None:
    plan = whole.loader()._stream.plan
    lengths_of = {
        name: table
        for stream in plan.streams
        for name, table in zip(stream.source_names, stream.lengths_of, strict=True)
    }
    counted: dict[str, list[int]] = {}
    for batch, totals in zip(whole.batches, whole.totals, strict=True):
        if not batch.idle:
            lengths = [int(lengths_of[name]([row])[0]) for name, _, row in batch.picks]
            is_pack = "cu_seqlens" in dict(batch.payload)
            for i, ((name, _, _), length) in enumerate(zip(batch.picks, lengths, strict=True)):
                free = (64 - sum(lengths) if i == 0 else 0) if is_pack else max(lengths) - length
                for key in ("all", name):
                    old = counted.setdefault(key, [0, 0, 0])
                    counted[key] = [old[0] + 1, old[1] + length, old[2] + free]
        for key, value in counted.items():
            assert [totals[key].samples, totals[key].length, totals[key].padding] == value


def test_the_state_after_a_batch_is_exact_for_a_consumer_that_fetched_ahead(whole: Whole) -> None:
    loader = whole.loader()
    iterator = iter(loader)
    fetched = [next(iterator) for _ in range(9)]
    assert saved(loader) == whole.states[8]
    assert [saved(loader, after=batch) for batch in fetched] == whole.states[:9]
    loader.load_state_dict(loader.state_dict(after=fetched[2]))
    assert seen(next(iterator)) == whole.batches[3]


def test_a_state_may_be_loaded_before_after_and_during_iteration(whole: Whole) -> None:
    state = json.loads(whole.states[10])
    loader = whole.loader()
    iterator = iter(loader)
    loader.load_state_dict(state)  # after iter(), before the first batch
    assert seen(next(iterator)) == whole.batches[11]
    next(iterator)
    loader.load_state_dict(state)  # in the middle
    assert saved(loader) == whole.states[10]
    assert [seen(next(iterator)) for _ in range(3)] == whole.batches[11:14]
    loader.load_state_dict(json.loads(whole.states[1]))  # twice, the second counts
    loader.load_state_dict(state)
    assert seen(next(iterator)) == whole.batches[11]
    assert seen(next(iter(whole.resumed(10)))) == whole.batches[11]


def test_a_loader_left_in_the_middle_goes_on_from_there_and_evaluation_starts_anew(whole: Whole) -> None:
    loader = whole.loader()
    assert [batch for batch, _, _ in deliver(loader, 5)] == whole.batches[:5]
    first = 0 if whole.split else 5
    assert [batch for batch, _, _ in deliver(loader, 5)] == whole.batches[first : first + 5]


def test_two_iterations_of_one_loader_never_mix_their_batches(whole: Whole) -> None:
    loader = whole.loader()
    early = iter(loader)
    assert seen(next(early)) == whole.batches[0]
    later = iter(loader)
    first = 0 if whole.split else 1
    assert [seen(next(later)) for _ in range(4)] == whole.batches[first : first + 4]
    with pytest.raises(Exception, match="this iterator was replaced"):
        next(early)
    assert seen(next(later)) == whole.batches[first + 4]


@pytest.mark.parametrize("whole", ["passes", "stop_all", "drop"], indirect=True)
def test_a_finite_stream_is_delivered_once_and_again_only_when_asked(whole: Whole) -> None:
    """In the process that delivered it and after a resume, in the middle or at the very end, alike."""
    loader = whole.loader()
    batches = [batch for batch, _, _ in deliver(loader)]
    assert loader.finished
    end = saved(loader)
    middle, last = whole.resumed(2), whole.loader()
    assert not middle.finished
    assert [batch for batch, _, _ in deliver(middle)] == batches[3:]
    last.load_state_dict(json.loads(end))
    for ended in (loader, middle, last):
        for _ in range(2):
            assert ended.finished
            assert [*ended] == []
            assert saved(ended) == end
    second = [_next_round(ended) for ended in (loader, middle, last)]
    assert second[0] == second[1] == second[2]
    found = [batch for batch, _, _ in second[0]]
    assert found[0].step == batches[-1].step + 1
    rows = sorted(pick for batch in found if not batch.idle for pick in batch.picks)
    firsts = sorted(pick for batch in batches if not batch.idle for pick in batch.picks)
    assert not {*rows} & {*firsts}
    assert [name for name, _, _ in rows] == [name for name, _, _ in firsts]
    assert json.loads(second[0][-1][1])["round"] == 1
    resumed = whole.loader()
    resumed.load_state_dict(json.loads(second[0][4][1]))
    assert [*deliver(resumed)] == second[0][5:]


def _next_round(loader: Loader) -> list[tuple[Seen, str, dict[str, Any]]]:
    assert loader.finished
    loader.next_round()
    assert not loader.finished
    return [*deliver(loader)]


def test_no_round_begins_before_the_one_under_way_is_over(whole: Whole) -> None:
    loader = whole.loader()
    assert not loader.finished
    next(iter(loader))
    message = "the current round has not finished"
    if whole.kind not in ("passes", "stop_all", "drop", "evaluation"):
        message = "the stream is endless"
    with pytest.raises(PlayheadError, match=message):
        loader.next_round()


@pytest.mark.parametrize("whole", ["evaluation"], indirect=True)
def test_an_evaluation_set_starts_anew_after_its_end(whole: Whole) -> None:
    loader = whole.loader()
    batches = [batch for batch, _, _ in deliver(loader)]
    assert loader.finished
    assert [batch for batch, _, _ in deliver(loader)] == batches
    resumed = whole.loader()
    resumed.load_state_dict(loader.state_dict())
    assert [batch for batch, _, _ in deliver(resumed)] == batches


def test_numpy_loaders_with_threads_deliver_the_same(whole: Whole) -> None:
    for workers, lookahead in ((1, 1), (2, 3), (3, 2)):
        make = numpy_loader(whole.recipe, split=whole.split, workers=workers, worker_kind="thread", lookahead=lookahead)
        found = rounds(make, 2, whole.states[1], 5)
        assert woven(found) == whole.batches[2:12]
        assert [state for _, state, _ in found[1]] == whole.states[3:12:2]
