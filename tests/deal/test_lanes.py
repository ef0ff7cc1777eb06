from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.deal import lanes_of_rank, worlds_that_fit
from playhead.errors import WorldSizeError


@given(st.integers(1, 60), st.integers(1, 20))
def test_every_lane_goes_to_one_rank_and_every_rank_gets_as_many(per_rank: int, world: int) -> None:
    lanes = per_rank * world
    dealt = [list(lanes_of_rank(rank, world, lanes)) for rank in range(world)]
    assert all(len(mine) == per_rank for mine in dealt)
    assert sorted(lane for mine in dealt for lane in mine) == list(range(lanes))
    assert dealt[0][0] == 0


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
