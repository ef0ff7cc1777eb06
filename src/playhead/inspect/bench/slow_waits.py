"""Long waits of a trainer, each pinned to the worker, the stage and the shard that it waited for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from playhead.feed.stats import BatchTiming
from playhead.feed.tasks import Work
from playhead.inspect.bench.recording import BatchRecord

MEDIANS = 5
_SHORTEST_SECONDS = 0.001  # a shorter wait is worth no report


@dataclass(frozen=True)
class PinnedWait:
    """A wait for the batch of a step and lane: how long, which worker made it, the stage, and where its bytes are.

    `stage` is "delivery" where the batch was made already, or on its way between processes. `made_step` is the step of
    the batch that was being made meanwhile: an earlier one, where the worker was late.
    """

    step: int
    lane: int
    worker: int
    seconds: float
    stage: str
    place: str
    made_step: int


def slow_limit(records: Sequence[BatchRecord]) -> float:
    """The seconds beyond which a wait is a long one."""
    return max(MEDIANS * median(record.wait for record in records), _SHORTEST_SECONDS)


def making_seconds(record: BatchRecord) -> float:
    """How long the batch itself was being made while it was waited for."""
    return _overlap(record.timing, record.asked, record.given)


def slow_waits(records: Sequence[BatchRecord], place_of: Callable[[Work], str]) -> list[PinnedWait]:
    """Every wait over five medians, the longest first; none of less than a millisecond."""
    if not records:
        return []
    limit = slow_limit(records)
    by_worker: dict[int, list[BatchRecord]] = {}
    for record in sorted(records, key=_ended):
        by_worker.setdefault(record.worker, []).append(record)
    slow = [record for record in records if record.wait > limit]
    found = [_pinned(record, _meanwhile(record, by_worker[record.worker]), place_of) for record in slow]
    return sorted(found, key=lambda wait: -wait.seconds)


def _meanwhile(record: BatchRecord, of_worker: Sequence[BatchRecord]) -> Iterator[BatchRecord]:
    """The batches that a worker was making while one of them was waited for, up to that one: later ones do not make it
    late.
    """
    for other in of_worker[bisect_right(of_worker, record.asked, key=_ended) :]:
        if other.timing.began >= record.given or other.timing.ended > record.timing.ended:
            return
        yield other


def _ended(record: BatchRecord) -> float:
    return record.timing.ended


def _pinned(record: BatchRecord, meanwhile: Iterable[BatchRecord], place_of: Callable[[Work], str]) -> PinnedWait:
    """The batch that its worker was making for the most of the wait is the one to blame."""
    blamed = max(meanwhile, key=lambda other: _overlap(other.timing, record.asked, record.given), default=record)
    if _overlap(blamed.timing, record.asked, record.given) < record.wait / 2:
        blamed, stage = record, "delivery"
        timing = blamed.timing
    else:
        timing = blamed.timing
        parts = timing.own_seconds()
        stage = max(parts, key=lambda name: parts[name])
    place = timing.slowest_path if stage == "storage" and timing.slowest_path is not None else place_of(blamed.work)
    if stage == "storage":
        stage = "open" if timing.open > timing.read else "read"
    mine = record.timing
    return PinnedWait(mine.step, mine.lane, record.worker, record.wait, stage, place, timing.step)


def _overlap(timing: BatchTiming, begin: float, end: float) -> float:
    return max(0.0, min(timing.ended, end) - max(timing.began, begin))
