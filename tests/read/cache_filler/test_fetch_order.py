"""What a cache fetches is decided by Belady's rule: its laws, and slow twins that they are compared with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.read.cache_filler.fetch_order import Fetch, FetchOrder
from playhead.store.files import Stamp
from playhead.store.shard_cache.directory import Unit

Trace = Sequence[Mapping[Unit, int]]  # what each step reads: units, and the bytes of each


def unit(number: int, size: int = 1) -> Unit:
    return Unit(f"{number:03}", Stamp(size, 0), 0, size)


def whole(trace: Sequence[Sequence[int]], size: int = 1) -> Trace:
    """Steps that read units of equal size whole."""
    return [{unit(n, size): size for n in step} for step in trace]


def decided(order: FetchOrder, trace: Trace) -> list[Fetch]:
    for step, needs in enumerate(trace):
        order.add(step, needs)
    found = []
    while (fetch := order.next_fetch(all_known=True)) is not None:
        found.append(fetch)
    return found


class Ran:
    """The fetches carried out as a filler does: each as soon as its victims have had their last use before it.

    Steps are delivered one by one, as early as the fetches for them are done; what is not there then is read past the
    cache.
    """

    def __init__(self, max_bytes: int, trace: Trace, resident: Sequence[Unit] = (), lead_bytes: int = 0) -> None:
        self.max_bytes, self.trace = max_bytes, trace
        self.steps_ahead: list[int] = []  # how long before its step each fetch with victims was carried out
        self.there = {*resident}
        self.copied: list[Unit] = []
        self.direct_bytes = 0
        order = FetchOrder(max_bytes, resident, lead_bytes=lead_bytes)
        fetches = decided(order, trace)
        for now, needs in enumerate(trace):
            while fetches and self._is_ready(fetches[0], now):
                self._carry_out(fetches.pop(0), now)
            self.direct_bytes += sum(num_bytes for each, num_bytes in needs.items() if each not in self.there)
        assert not fetches, "every fetch is ready at its own step at the latest"

    def _is_ready(self, fetch: Fetch, now: int) -> bool:
        return all(self._next_use(victim, now) >= fetch.step for victim in fetch.victims)

    def _next_use(self, wanted: Unit, first: int) -> float:
        return next((step for step in range(first, len(self.trace)) if wanted in self.trace[step]), inf)

    def _carry_out(self, fetch: Fetch, now: int) -> None:
        assert len({*fetch.victims}) == len(fetch.victims)
        assert self.there.issuperset(fetch.victims)
        assert fetch.unit not in self.there
        for victim in fetch.victims:
            between = range(now, fetch.step + 1)
            assert not any(victim in self.trace[step] for step in between), "needed before the fetch is"
        self.there.difference_update(fetch.victims)
        self.there.add(fetch.unit)
        self.copied.append(fetch.unit)
        if fetch.victims:
            self.steps_ahead.append(fetch.step - now)
        assert sum(each.size for each in self.there) <= self.max_bytes

    @property
    def num_bytes(self) -> int:
        return sum(each.size for each in self.copied) + self.direct_bytes


def lru_bytes(max_bytes: int, trace: Trace) -> int:
    """What a plain LRU cache of whole units fetches, one unit after another."""
    there: OrderedDict[Unit, None] = OrderedDict()
    fetched = 0
    for needs in trace:
        for each, num_bytes in needs.items():
            if each in there:
                there.move_to_end(each)
                continue
            if each.size > max_bytes:
                fetched += num_bytes
                continue
            fetched += each.size
            there[each] = None
            while sum(other.size for other in there) > max_bytes:
                there.popitem(last=False)
    return fetched


def fewest_fetches(num_units: int, trace: Sequence[int]) -> int:
    """The fewest fetches of any cache that takes in every unit that it misses: by trying every eviction."""

    @cache
    def fewest(step: int, there: frozenset[int]) -> int:
        if step == len(trace):
            return 0
        if trace[step] in there:
            return fewest(step + 1, there)
        kept = [there] if len(there) < num_units else [there - {victim} for victim in there]
        return 1 + min(fewest(step + 1, each | {trace[step]}) for each in kept)

    return fewest(0, frozenset())


@st.composite
def traces(draw: st.DrawFn, most_units: int = 9) -> Trace:
    """Units of different sizes, read whole or in part, several in a step."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=most_units))
    units = [unit(n, size) for n, size in enumerate(sizes)]
    steps = draw(st.lists(st.lists(st.sampled_from(units), max_size=4, unique=True), max_size=25))
    return [{each: draw(st.integers(0, each.size)) for each in step} for step in steps]


@given(traces(), st.integers(1, 40), st.integers(0, 60))
def test_what_is_there_never_exceeds_the_limit_and_no_victim_is_needed_meanwhile(
    trace: Trace, max_bytes: int, lead_bytes: int
) -> None:
    Ran(max_bytes, trace, (), lead_bytes)


@given(traces(), st.integers(1, 40), st.data())
def test_a_cache_that_is_not_empty_keeps_the_same_laws(trace: Trace, max_bytes: int, data: st.DataObject) -> None:
    known = [*dict.fromkeys(each for needs in trace for each in needs), unit(100, 3), unit(101, 5)]
    resident = []
    for each in data.draw(st.permutations(known)):
        if sum(other.size for other in resident) + each.size <= max_bytes:
            resident.append(each)
    Ran(max_bytes, trace, resident)


@given(st.lists(st.integers(0, 5), max_size=11), st.integers(1, 4))
def test_units_of_equal_size_are_fetched_as_seldom_as_by_any_rule(trace: list[int], num_units: int) -> None:
    ran = Ran(num_units, whole([[n] for n in trace]))
    assert len(ran.copied) == fewest_fetches(num_units, trace)
    assert ran.direct_bytes == 0


@given(st.lists(st.lists(st.integers(0, 8), max_size=4, unique=True), max_size=30), st.integers(4, 7))
def test_no_more_bytes_are_read_than_with_a_plain_lru_cache_that_holds_a_step(
    trace: list[list[int]], num_units: int
) -> None:
    steps = whole(trace, 7)
    assert Ran(7 * num_units, steps).num_bytes <= lru_bytes(7 * num_units, steps)


def groups(seed: int, num_epochs: int, num_shards: int, group: int, steps_in_group: int) -> list[list[int]]:
    """A shuffle in groups of shards: every step of a group reads of several of its shards."""
    import random

    chance = random.Random(seed)  # noqa: S311 - no secret
    found = []
    for _ in range(num_epochs):
        shards = chance.sample(range(num_shards), num_shards)
        for first in range(0, num_shards, group):
            chosen = shards[first : first + group]
            found += [chance.sample(chosen, min(3, len(chosen))) for _ in range(steps_in_group)]
            found.append(chosen)
    return found


@pytest.mark.parametrize(
    ("name", "trace"),
    [
        ("cyclic", [[step % 10] for step in range(60)]),
        ("groups", groups(1, num_epochs=3, num_shards=24, group=4, steps_in_group=6)),
        ("more groups", groups(2, num_epochs=2, num_shards=30, group=6, steps_in_group=9)),
    ],
)
def test_a_cache_smaller_than_an_epoch_reads_less_than_lru(name: str, trace: list[list[int]]) -> None:
    steps = whole(trace)
    assert Ran(8, steps).num_bytes < lru_bytes(8, steps)
    assert Ran(8, steps, (), 4).num_bytes <= lru_bytes(8, steps)


def test_with_a_lead_the_shards_of_a_group_are_fetched_while_the_group_before_is_read() -> None:
    """Without one, a shard that is still read may be the victim, and the next group comes when it is due."""
    trace = groups(4, 3, num_shards=32, group=8, steps_in_group=20)
    steps = [dict.fromkeys(needs, 3) for needs in whole(trace, 20)]
    size = 20 * 20  # two groups and a half
    late, early = Ran(size, steps), Ran(size, steps, (), size // 2)
    assert min(late.steps_ahead) == 0
    assert min(early.steps_ahead) >= 10
    assert early.num_bytes <= lru_bytes(size, steps)


def test_groups_of_shards_are_fetched_once_an_epoch_where_two_groups_have_room() -> None:
    trace = groups(3, num_epochs=1, num_shards=40, group=4, steps_in_group=10)
    ran = Ran(8, whole(trace))
    assert len(ran.copied) == 40
    assert ran.direct_bytes == 0


def test_a_global_shuffle_over_more_than_the_cache_fetches_what_fits_and_reads_the_rest_by_range() -> None:
    """A shard of 1,000 bytes of which every step reads 10 is never fetched in place of another like it."""
    trace = [{unit(shard, 1000): 10 for shard in range(40)} for _ in range(50)]
    ran = Ran(10_000, trace)
    assert len(ran.copied) == 10
    assert ran.direct_bytes == 30 * 10 * 50


@given(traces(), st.integers(5, 40), st.integers(0, 30))
def test_a_cache_that_is_made_smaller_holds_no_more_than_that(trace: Trace, max_bytes: int, smaller: int) -> None:
    order = FetchOrder(max_bytes)
    for step, needs in enumerate(trace):
        order.add(step, needs)
    for _ in range(5):
        order.next_fetch(all_known=True)
    order.resize(smaller)
    assert order.num_bytes <= smaller
    while order.next_fetch(all_known=True) is not None:
        assert order.num_bytes <= smaller
    held = [each for each in {each for needs in trace for each in needs} if each in order]
    assert sum(each.size for each in held) == order.num_bytes


def test_what_is_given_up_first_is_needed_last() -> None:
    order = FetchOrder(3)
    for step, needs in enumerate(whole([[0], [1], [2], [1], [0], [2]])):
        order.add(step, needs)
    assert [order.next_fetch(all_known=True) for _ in range(3)] == [Fetch(unit(n), n) for n in range(3)]
    order.resize(2)
    assert [n for n in range(3) if unit(n) in order] == [0, 1]


def test_a_unit_that_is_lost_is_fetched_again_when_it_is_next_needed() -> None:
    order = FetchOrder(5)
    for step, needs in enumerate(whole([[0], [0], [0]])):
        order.add(step, needs)
    first = order.next_fetch(all_known=True)
    assert first == Fetch(unit(0), 0)
    order.lose(unit(0))
    assert order.num_bytes == 0
    assert order.next_fetch(all_known=True) == Fetch(unit(0), 1)
    assert order.next_fetch(all_known=True) is None


def test_units_of_an_earlier_run_are_checked_once_before_their_first_use() -> None:
    order = FetchOrder(3, [unit(0)], [unit(1), unit(2)])
    fetches = decided(order, whole([[0], [1], [1], [0, 1]]))
    assert fetches == [Fetch(unit(1), 1)]
    assert unit(2) in order, "nothing else needed its space"


def test_unchecked_units_are_evicted_as_others_are() -> None:
    order = FetchOrder(2, (), [unit(1), unit(2)])
    fetches = decided(order, whole([[0], [1]]))
    assert fetches == [Fetch(unit(0), 0, (unit(2),)), Fetch(unit(1), 1)]


def test_nothing_is_evicted_before_all_is_planned() -> None:
    order = FetchOrder(2)
    for step, needs in enumerate(whole([[0], [1], [2]])):
        order.add(step, needs)
    found = [order.next_fetch(all_known=False) for _ in range(3)]
    assert found == [Fetch(unit(0), 0), Fetch(unit(1), 1), None]
    order.add(3, {unit(1): 1})
    order.add(4, {unit(0): 1})
    assert order.next_fetch(all_known=True) == Fetch(unit(2), 2, (unit(0),))


@given(traces(), st.integers(1, 40), st.integers(0, 30))
def test_nothing_is_fetched_for_steps_that_were_delivered(trace: Trace, max_bytes: int, now: int) -> None:
    order = FetchOrder(max_bytes)
    order.advance(now)
    assert all(fetch.step >= now for fetch in decided(order, trace))


@given(traces(), st.integers(1, 40))
def test_what_was_delivered_is_forgotten(trace: Trace, max_bytes: int) -> None:
    order = FetchOrder(max_bytes)
    decided(order, trace)
    order.advance(len(trace))
    assert order.num_uses == 0
    assert order.next_fetch(all_known=True) is None


def test_a_stream_that_fits_takes_no_more_memory_the_longer_it_runs() -> None:
    order = FetchOrder(100)
    sizes = []
    for step in range(4000):
        order.add(step, {unit(n): 1 for n in range(20)})
        while order.next_fetch(all_known=True) is not None:
            pass
        order.advance(step)
        assert order.num_uses == 20
        sizes.append(len(order._furthest))
    assert max(sizes) <= 1024 + 2 * 20 + 1
