"""The laws of the plan, over random streams of every kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import divisors, plans, single, streams

from playhead.deal import lanes_of_rank
from playhead.errors import EndOfStreamError
from playhead.plan.cursor import Cursor
from playhead.plan.plan import Plan
from playhead.plan.rules import FixedRule
from playhead.plan.segments import Stream, round_end
from playhead.plan.step import MicroBatch, Step
from playhead.plan.window import plan_window

ENDLESS = ("repeat",)
FINITE = ("stop_first", "stop_all", "drop")


def take(plan: Plan, count: int, cursor: Cursor | None = None) -> list[Step]:
    return [step for (step, _), _ in zip(plan.steps(cursor), range(count), strict=False)]


def content(batch: MicroBatch) -> tuple:
    picks = batch.picks
    return (batch.lane, batch.stream, batch.idle, *map(tuple, (picks.source, picks.epoch, picks.row)))


def contents(steps: list[Step]) -> list:
    return [(step.number, step.receipt, [content(batch) for batch in step.micro_batches]) for step in steps]


def samples(steps: list[Step]) -> Counter:
    return Counter(
        (batch.stream, source, epoch, row)
        for step in steps
        for batch in step.micro_batches
        if not batch.idle
        for source, epoch, row in zip(
            batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True
        )
    )


@given(plans(policies=ENDLESS, epochs=st.integers(1, 3)), st.data())
def test_a_pass_plans_every_row_exactly_once(plan: Plan, data: st.DataObject) -> None:
    steps = [step for step, _ in plan.steps()]
    epochs = plan.streams[0].epochs
    world = data.draw(st.sampled_from(divisors(plan.lanes)))
    dealt = [
        Step(step.number, tuple(step.micro_batches[lane] for lane in lanes_of_rank(rank, world, plan.lanes)), None)
        for step in steps
        for rank in range(world)
    ]
    expected = Counter(
        (i, source, epoch, row)
        for i, stream in enumerate(plan.streams)
        for source, order in enumerate(stream.orders)
        for epoch in range(epochs)
        for row in range(order.num_rows)
    )
    assert samples(dealt) == expected


@given(streams(policies=("drop",)))
def test_drop_plans_every_row_exactly_once(stream: Stream) -> None:
    expected = Counter((0, s, 0, row) for s, order in enumerate(stream.orders) for row in range(order.num_rows))
    assert samples([step for step, _ in single(stream).steps()]) == expected


@given(streams(policies=("stop_first",)))
def test_stop_first_ends_with_the_draw_that_takes_a_sources_last_row(stream: Stream) -> None:
    counts = Counter(source for _, source, _, _ in samples([step for step, _ in single(stream).steps()]).elements())
    complete = [s for s, order in enumerate(stream.orders) if counts[s] == order.num_rows]
    assert len(complete) == 1
    assert all(counts[s] < order.num_rows for s, order in enumerate(stream.orders) if s not in complete)


@given(streams(policies=("stop_all",)))
def test_stop_all_ends_when_the_last_source_finishes_its_first_epoch(stream: Stream) -> None:
    counts = Counter(source for _, source, _, _ in samples([step for step, _ in single(stream).steps()]).elements())
    assert all(counts[s] >= order.num_rows for s, order in enumerate(stream.orders))
    assert any(counts[s] == order.num_rows for s, order in enumerate(stream.orders))


@given(streams(epochs=st.none() | st.integers(1, 2)), st.integers(0, 3))
def test_every_window_holds_whole_steps_and_each_of_its_samples_once(stream: Stream, number: int) -> None:
    last = round_end(stream, 0)
    window = plan_window(stream, number if last is None else number % last)
    assert len(window.groups) % window.lanes == 0
    assert sorted(window.groups.members.tolist()) == list(range(window.stop_draw - window.first_draw))


@given(streams(epochs=st.none() | st.integers(1, 2)), st.integers(0, 3))
def test_no_step_is_idle_as_a_whole(stream: Stream, number: int) -> None:
    last = round_end(stream, 0)
    window = plan_window(stream, number if last is None else number % last)
    busy = window.groups.sizes().reshape(window.num_steps, window.lanes) > 0
    assert busy.any(axis=1).all()


@given(plans(policies=ENDLESS))
def test_no_lane_is_idle_in_an_endless_stream(plan: Plan) -> None:
    assert not any(batch.idle for step in take(plan, 30) for batch in step.micro_batches)


@given(plans(policies=ENDLESS + FINITE))
def test_an_idle_lane_repeats_the_smallest_real_one_and_counts_nothing(plan: Plan) -> None:
    for step in take(plan, 40):
        busy = [batch for batch in step.micro_batches if not batch.idle]
        fewest = min(len(batch.picks) for batch in busy)
        for batch in step.micro_batches:
            if batch.idle:
                assert batch.num_samples == 0
                assert len(batch.picks) == fewest
                assert any(content(batch)[3:] == content(other)[3:] for other in busy)


@given(streams(shuffles=("none",), max_sources=1, rule=st.builds(FixedRule, st.integers(1, 5))))
def test_fixed_batches_of_one_unshuffled_source_are_file_order(stream: Stream) -> None:
    steps = take(single(stream), 25)
    draws = [
        (epoch, row)
        for step in steps
        for batch in step.micro_batches
        if not batch.idle
        for epoch, row in zip(batch.picks.epoch.tolist(), batch.picks.row.tolist(), strict=True)
    ]
    assert draws == [divmod(i, stream.orders[0].num_rows) for i in range(len(draws))]


@given(plans(), st.data())
def test_every_world_size_is_dealt_the_same_stream_evenly_and_disjointly(plan: Plan, data: st.DataObject) -> None:
    world = data.draw(st.sampled_from(divisors(plan.lanes)))
    for step in take(plan, 10):
        dealt = [lanes_of_rank(rank, world, plan.lanes) for rank in range(world)]
        assert {len(lanes) for lanes in dealt} == {plan.lanes // world}
        assert sorted(lane for lanes in dealt for lane in lanes) == list(range(plan.lanes))
        assert [batch.lane for batch in step.micro_batches] == list(range(plan.lanes))


@given(plans(), st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_a_window_does_not_depend_on_which_windows_were_planned_before(plan: Plan, numbers: list[int]) -> None:
    stream = plan.streams[0]
    last = round_end(stream, 0)
    for number in numbers:
        if last is None or number < last:
            known, fresh = plan.window(0, number), plan_window(stream, number)
            assert np.array_equal(known.groups.members, fresh.groups.members)
            assert np.array_equal(known.groups.starts, fresh.groups.starts)
            assert np.array_equal(known.picks.row, fresh.picks.row)


@given(plans(), st.integers(0, 25))
def test_a_cursor_advanced_step_by_step_equals_one_opened_there(plan: Plan, count: int) -> None:
    planned = take(plan, count + 5)
    cursor = plan.start()
    for _ in range(min(count, len(planned))):
        cursor = plan.advance(cursor)
    reopened = replace(plan, _windows={})
    rest = planned[count:]
    assert contents(take(reopened, len(rest), cursor)) == contents(rest)


@given(streams(policies=ENDLESS, rule=st.builds(FixedRule, st.integers(1, 5))), st.integers(1, 60))
def test_the_closed_form_opens_the_same_step_as_planning_step_by_step(stream: Stream, number: int) -> None:
    plan = single(stream)
    planned = take(plan, number + 1)[number]
    opened, _ = plan.step_at(plan.seek(number))
    assert [content(batch) for batch in opened.micro_batches] == [content(batch) for batch in planned.micro_batches]
    assert opened.number == number


@given(plans(policies=FINITE))
def test_a_step_past_a_finite_end_is_refused_with_the_number_of_steps(plan: Plan) -> None:
    num_steps = sum(1 for _ in plan.steps())
    assert plan.seek(num_steps - 1).step == num_steps - 1
    with pytest.raises(EndOfStreamError, match=f"{num_steps:,} steps in all"):
        plan.seek(num_steps)


@given(plans(), st.integers(0, 20))
def test_a_receipt_tells_streams_apart_exactly_where_they_part(plan: Plan, at: int) -> None:
    steps = take(plan, at + 1)
    assert [step.receipt for step in steps] == [step.receipt for step in take(plan, at + 1)]
    stream = plan.streams[0]
    renamed = Stream(**{**vars(stream), "source_names": tuple(f"other-{n}" for n in stream.source_names)})
    other = take(replace(plan, streams=(renamed, *plan.streams[1:]), _windows={}), at + 1)
    used = [any(batch.stream == 0 and not batch.idle for batch in step.micro_batches) for step in steps]
    parted = [any(used[: i + 1]) for i in range(len(steps))]
    assert [ours.receipt != theirs.receipt for ours, theirs in zip(steps, other, strict=True)] == parted


@given(streams(policies=ENDLESS), streams(policies=ENDLESS, name="second"))
def test_a_zipped_step_has_the_lanes_of_every_sub_stream_in_order(first: Stream, second: Stream) -> None:
    expected = [0] * first.segments[0].lanes + [1] * second.segments[0].lanes
    for step in take(Plan((first, second), None, ()), 8):
        assert [batch.stream for batch in step.micro_batches] == expected


@given(plans(kinds=("weight",), policies=ENDLESS))
def test_a_step_fused_by_weight_belongs_to_one_sub_stream_and_weights_hold(plan: Plan) -> None:
    turns = []
    for step in take(plan, 40):
        (owner,) = {batch.stream for batch in step.micro_batches}
        turns.append(owner)
    for i, stream in enumerate(plan.streams):
        mine = [step for step, owner in zip(take(plan, 40), turns, strict=True) if owner == i]
        alone = take(single(stream), len(mine))
        assert [[content(b)[2:] for b in s.micro_batches] for s in mine] == [
            [content(b)[2:] for b in s.micro_batches] for s in alone
        ]


@given(plans(policies=ENDLESS, epochs=st.integers(1, 2)))
def test_after_a_round_of_passes_the_next_one_follows(plan: Plan) -> None:
    """A cursor at the end of a round is the start of the next, which takes every row again in later epochs."""
    cursor = plan.start()
    epochs = plan.streams[0].epochs
    for number in range(3):
        assert plan.round_of(cursor) == number
        steps = []
        for step, after in plan.steps(cursor):
            steps.append(step)
            cursor = after
        assert samples(steps) == Counter(
            (i, source, epoch, row)
            for i, stream in enumerate(plan.streams)
            for source, order in enumerate(stream.orders)
            for epoch in range(number * epochs, (number + 1) * epochs)
            for row in range(order.num_rows)
        )


@given(plans(policies=FINITE))
def test_after_all_there_is_the_next_round_draws_the_same_sources_in_epochs_of_their_own(plan: Plan) -> None:
    """Rounds have as many windows, draw each source as often, and share no (source, epoch)."""
    cursor = plan.start()
    found: list[Counter] = []
    for number in range(3):
        assert plan.round_of(cursor) == number
        assert [place.window for place in cursor.places] == [number * round_end(stream, 0) for stream in plan.streams]
        steps = []
        for step, after in plan.steps(cursor):
            steps.append(step)
            cursor = after
        found.append(samples(steps))
    drawn = [Counter((stream, source) for stream, source, *_ in seen.elements()) for seen in found]
    assert drawn[0] == drawn[1] == drawn[2]
    epochs = [{(stream, source, epoch) for stream, source, epoch, _ in seen} for seen in found]
    assert not epochs[0] & epochs[1]
    assert not epochs[1] & epochs[2]
    relative = [
        {(stream, source, epoch - _first(seen, stream, source)) for stream, source, epoch in seen} for seen in epochs
    ]
    assert relative[0] == relative[1] == relative[2]


def _first(epochs: set[tuple[int, int, int]], stream: int, source: int) -> int:
    return min(epoch for found, of, epoch in epochs if (found, of) == (stream, source))


@given(plans(), st.data())
def test_laying_out_some_lanes_gives_what_laying_out_all_gives(plan: Plan, data: st.DataObject) -> None:
    world = data.draw(st.sampled_from(divisors(plan.lanes)))
    rank = data.draw(st.integers(0, world - 1))
    cursor = plan.start()
    for _ in range(8):
        found = plan.step_at(cursor)
        if found is None:
            break
        whole, after = found
        lanes = lanes_of_rank(rank, world, plan.lanes)
        own, also_after = plan.step_at(cursor, slice(rank, None, world))
        assert [content(batch) for batch in own.micro_batches] == [content(whole.micro_batches[n]) for n in lanes]
        assert (own.receipt, also_after) == (whole.receipt, after)
        cursor = after


@given(plans() | plans(epochs=st.integers(1, 2)) | plans(policies=FINITE), st.integers(2, 9), st.data())
def test_steps_laid_out_together_are_the_steps_one_by_one(plan: Plan, most: int, data: st.DataObject) -> None:
    world = data.draw(st.sampled_from(divisors(plan.lanes)))
    wanted = slice(data.draw(st.integers(0, world - 1)), None, world)
    cursor: Cursor = plan.start()
    lengths = []
    for _ in range(6):
        together = plan.steps_at(cursor, wanted, most)
        if together is None:
            assert plan.step_at(cursor, wanted) is None
            break
        lengths.append(len(together))
        for nth in range(len(together)):
            assert together.cursor_at(nth) == cursor
            found = plan.step_at(cursor, wanted)
            assert found is not None
            step, cursor = found
            assert contents([together.step(nth)]) == contents([step])
            assert together.step(nth).parts == step.parts
        assert together.after == together.cursor_at(len(together)) == cursor
    if len(plan.streams) == 1 and plan.window(0, 0).num_steps > 2:  # an idle lane is in the last step, if any
        assert lengths[0] > 1


@given(plans(kinds=("parts",), policies=ENDLESS), st.data())
def test_a_rank_keeps_to_one_part_where_the_parts_divide_the_ranks(plan: Plan, data: st.DataObject) -> None:
    worlds = [world for world in divisors(plan.lanes) if world % len(plan.streams) == 0]
    world = data.draw(st.sampled_from(worlds))
    for step in take(plan, 5):
        for rank in range(world):
            lanes = lanes_of_rank(rank, world, plan.lanes)
            assert {step.micro_batches[lane].stream for lane in lanes} == {rank % len(plan.streams)}
