"""How far ahead the filler of a shard cache plans a stream."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.read.cache_filler.fetch_order import FetchOrder
from playhead.read.cache_filler.filling import _Member
from playhead.store import Stamp
from playhead.store.shard_cache.directory import Unit
from playhead.store.shard_cache.ranks import LiveRank, RankRecord


def rank_at(step: int, steps_ahead: int = 0) -> LiveRank:
    return LiveRank("0", RankRecord("", None, 0, 1, (0,), 0, steps_ahead=steps_ahead), step)


def member_of(look_ahead: int | None, rank: LiveRank) -> _Member:
    """A stream of which every step needs a unit of its own, without end."""
    needs = ((step, {Unit("a", Stamp(1 << 40, 0), step, step + 1): 1}) for step in count())
    stream: Any = SimpleNamespace(options=SimpleNamespace(look_ahead=look_ahead), steps=lambda *_: needs)
    return _Member(stream, [rank], FetchOrder(1000))


def planned(member: _Member) -> int:
    while member.plan_some():
        pass
    return member.planned_to


@pytest.mark.parametrize(("look_ahead", "steps_ahead"), [(1, 0), (1, 4), (3, 4), (20, 4)])
def test_the_steps_to_look_ahead_begin_behind_those_that_workers_prepare(look_ahead: int, steps_ahead: int) -> None:
    assert planned(member_of(look_ahead, rank_at(0, steps_ahead))) == 1 + steps_ahead + look_ahead


def test_what_a_stream_delivers_until_the_filler_looks_again_is_planned_as_well() -> None:
    member = member_of(1, rank_at(0))
    assert planned(member) == 2
    member.advance([rank_at(10)])
    assert planned(member) == 10 + 2 * 10 + 2
    member.advance([rank_at(13)])
    assert planned(member) == 13 + 2 * 10 + 2


def test_without_a_number_of_steps_twice_the_space_is_planned() -> None:
    assert planned(member_of(None, rank_at(0, 4))) == 2000
