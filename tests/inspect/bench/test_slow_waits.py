from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from playhead.feed.stats import BatchTiming
from playhead.feed.tasks import Work
from playhead.inspect.bench.recording import BatchRecord
from playhead.inspect.bench.slow_waits import slow_waits


def record(step: int, worker: int, made: tuple[float, float], given: float, wait: float, **timed: Any) -> BatchRecord:
    timing = BatchTiming(100 + worker, worker, step, 0, *made, **timed)
    work: Work = step  # type: ignore[assignment]  # only the place function looks at it
    return BatchRecord(timing, worker, given - wait, given, work, 4, True)


def place(work: Work) -> str:
    return f"shard of step {work}"


QUICK = [record(i, i % 2, (i / 10, i / 10 + 0.001), i / 10 + 0.05, 0.002, decode=0.001) for i in range(20)]


def test_a_wait_is_pinned_to_the_longest_stage_of_its_batch_and_the_slowest_file() -> None:
    slow = record(20, 0, (2.0, 3.0), 3.01, 0.9, open=0.1, read=0.8, waited=0.9, decode=0.1, slowest_path="s3://b/7")
    (found,) = slow_waits([*QUICK, slow], place)
    assert (found.step, found.worker, found.stage, found.place, found.made_step) == (20, 0, "read", "s3://b/7", 20)
    mapped = record(20, 1, (2.0, 3.0), 3.01, 0.9, waited=0.1, read=0.1, map=0.9, slowest_path="s3://b/7")
    (found,) = slow_waits([*QUICK, mapped], place)
    assert (found.stage, found.place) == ("map", "shard of step 20")


def test_a_wait_for_a_late_worker_is_pinned_to_what_it_was_making() -> None:
    before = record(20, 0, (2.0, 4.0), 4.01, 0.001, map=2.0)
    after = record(22, 0, (4.0, 4.01), 4.02, 1.5, decode=0.01)
    (found,) = slow_waits([*QUICK, before, after], place)
    assert (found.step, found.stage, found.made_step, found.place) == (22, "map", 20, "shard of step 20")


def test_a_wait_for_a_batch_that_was_made_already_is_delivery() -> None:
    made = record(20, 0, (2.0, 2.1), 4.0, 1.0, decode=0.1)
    (found,) = slow_waits([*QUICK, made], place)
    assert (found.stage, found.made_step) == ("delivery", 20)


def test_a_wait_for_a_batch_that_was_made_already_is_not_blamed_on_the_next_batch_of_its_worker() -> None:
    made = record(20, 0, (2.0, 2.1), 4.0, 1.0, decode=0.1)
    later = record(22, 0, (2.1, 4.5), 4.6, 0.001, map=2.4)
    found = slow_waits([*QUICK, made, later], place)[0]
    assert (found.step, found.stage, found.made_step) == (20, "delivery", 20)


def test_short_waits_are_no_news_and_the_longest_comes_first() -> None:
    even = [record(i, 0, (i / 10, i / 10 + 0.0001), i / 10 + 0.05, 0.00001) for i in range(20)]
    assert slow_waits([*even, record(20, 0, (2.0, 2.1), 3.0, 0.0009)], place) == []
    assert slow_waits([], place) == []
    two = [record(20, 0, (2.0, 3.0), 3.0, 0.5, map=1.0), record(21, 1, (3.0, 4.0), 4.0, 0.7, map=1.0)]
    assert [wait.seconds for wait in slow_waits([*QUICK, *two], place)] == [two[1].wait, two[0].wait]


def test_what_a_thread_decoded_ahead_is_not_the_time_of_the_worker() -> None:
    timing = BatchTiming(1, 0, 0, 0, 0.0, 1.0, read=5.0, waited=0.5, decode=3.0, collate=0.1, ahead=4.5)
    found = timing.own_seconds()
    assert sum(found.values()) == 1.0
    assert found["decode"] == 0.4


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 3), st.floats(0, 3), st.floats(0, 5)), max_size=30))
def test_the_batch_to_blame_is_that_with_the_largest_overlap_of_all(
    batches: list[tuple[int, float, float, float]],
) -> None:
    """The slow twin looks at every batch of the worker."""
    free: dict[int, float] = {}
    records = []
    for step, (worker, idle, busy, wait) in enumerate(batches):
        began = free.get(worker, 0.0) + idle
        free[worker] = began + busy
        records.append(record(step, worker, (began, began + busy), began + busy + 0.01, wait, map=busy))

    def overlap(other: BatchRecord, waited: BatchRecord) -> float:
        return max(0.0, min(other.timing.ended, waited.given) - max(other.timing.began, waited.asked))

    for found in slow_waits(records, place):
        waited = records[found.step]
        same = [other for other in records if other.worker == waited.worker]
        most = max(overlap(other, waited) for other in same)
        if found.stage == "delivery":
            assert most < waited.wait / 2
        else:
            assert overlap(records[found.made_step], waited) == most
