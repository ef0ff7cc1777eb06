from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.deal import after_lane, lanes_left, lanes_of_rank, lanes_per_rank, num_done, worlds_that_fit
from playhead.errors import WorldSizeError


@given(st.integers(1, 60), st.integers(1, 20))
def test_every_lane_goes_to_one_rank_and_every_rank_gets_as_many(per_rank: int, world: int) -> None:
    lanes = per_rank * world
    dealt = [list(lanes_of_rank(rank, world, lanes)) for rank in range(world)]
    assert all(len(mine) == per_rank for mine in dealt)
    assert sorted(lane for mine in dealt for lane in mine) == list(range(lanes))
    assert dealt[0][0] == 0
    assert lanes_per_rank(lanes, world) == per_rank


@given(st.integers(1, 12), st.integers(1, 8), st.data())
def test_a_step_begun_on_one_world_size_is_ended_on_another_with_every_lane_once(
    per_rank: int, world: int, data: st.DataObject
) -> None:
    lanes = per_rank * world
    lanes_done = world * data.draw(st.integers(0, per_rank - 1))
    other = data.draw(st.sampled_from(worlds_that_fit(lanes, lanes_done)))
    left = [range(lanes)[lanes_left(rank, other, lanes_done)] for rank in range(other)]
    assert sorted(lane for mine in left for lane in mine) == [*range(lanes_done, lanes)]
    assert all({*mine} <= {*lanes_of_rank(rank, other, lanes)} for rank, mine in enumerate(left))


@given(st.integers(1, 12), st.integers(1, 8), st.data())
def test_ranks_agree_on_the_lanes_done_after_each_of_theirs_and_on_the_end_of_the_step(
    per_rank: int, world: int, data: st.DataObject
) -> None:
    lanes = per_rank * world
    lanes_done = world * data.draw(st.integers(0, per_rank - 1))
    expected = [(done, done == lanes) for done in range(lanes_done + world, lanes + 1, world)]
    for rank in range(world):
        mine = range(lanes)[lanes_left(rank, world, lanes_done)]
        assert [after_lane(lane, rank, world, lanes) for lane in mine] == expected


@given(st.integers(0, 30), st.integers(1, 20), st.integers(1, 5), st.integers(0, 60))
def test_the_lanes_of_a_sub_stream_that_are_done_are_counted(start: int, count: int, stride: int, done: int) -> None:
    lanes = range(start, start + count * stride, stride)
    assert num_done(lanes, done) == sum(lane < done for lane in lanes)


@given(st.integers(1, 200), st.integers(0, 200))
def test_the_worlds_that_fit_divide_the_lanes_and_the_lanes_done(lanes: int, done: int) -> None:
    done = min(done, lanes)
    expected = [w for w in range(1, lanes + 1) if lanes % w == 0 and done % w == 0]
    assert worlds_that_fit(lanes, done) == expected


def test_a_world_that_does_not_divide_the_lanes_is_told_which_do() -> None:
    with pytest.raises(WorldSizeError) as caught:
        lanes_of_rank(0, 5, 12)
    assert "divides 12: 1, 2, 3, 4, 6, 12" in str(caught.value)
    assert "`lanes: 15`" in str(caught.value)


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0), (0, -3)])
def test_a_rank_outside_its_world_is_refused(rank: int, world: int) -> None:
    with pytest.raises(WorldSizeError, match=f"rank {rank} of {world}"):
        lanes_of_rank(rank, world, 4)
