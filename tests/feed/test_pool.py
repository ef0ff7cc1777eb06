"""Work done ahead of time comes back in order, whatever is done with the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.feed.pool import ahead


@dataclass(frozen=True)
class Numbered:
    """A task as far as `ahead` looks at it."""

    work: int


@dataclass
class Doubling:
    """Doubles numbers, and keeps track of what is under way."""

    fails_at: int | None = None
    under_way: set[int] = field(default_factory=set)
    most: int = 0

    def submit(self, work: int) -> Callable[[], int]:
        self.under_way.add(work)
        self.most = max(self.most, len(self.under_way))
        return lambda: self._result(work)

    def _result(self, work: int) -> int:
        if work == self.fails_at:
            raise ValueError(work)
        self.under_way.remove(work)
        return 2 * work


@given(st.integers(0, 12), st.integers(1, 15))
def test_results_are_in_order_with_no_more_under_way_than_asked_for(num_tasks: int, depth: int) -> None:
    worker = Doubling()
    found = [*ahead(map(Numbered, range(num_tasks)), depth, worker.submit)]
    assert found == [(Numbered(i), 2 * i) for i in range(num_tasks)]
    assert worker.most == min(num_tasks, depth)


def test_no_more_is_under_way_than_asked_for_however_many_results_were_taken() -> None:
    worker = Doubling()
    results = ahead(map(Numbered, count()), 3, worker.submit)
    assert [result for _, result in islice(results, 4)] == [0, 2, 4, 6]
    assert worker.under_way == {4, 5, 6}


def test_a_failure_comes_after_what_was_asked_for_before_it() -> None:
    worker = Doubling(fails_at=3)
    found = []
    with pytest.raises(ValueError, match="3"):
        found.extend(map(tuple, ahead(map(Numbered, count()), 2, worker.submit)))
    assert [result for _, result in found] == [0, 2, 4]
