"""What a run was waiting for, from records whose times are given."""

from __future__ import annotations

import pytest

from playhead.feed.stats import BatchTiming
from playhead.inspect.bench.figures import figures_of
from playhead.inspect.bench.recording import BatchRecord, Recording
from playhead.inspect.bench.storage_probe import NO_PROBE
from playhead.inspect.bench.values import LoaderSettings, RunFigures


def recorded(waits: list[tuple[float, float]], num_warm: int = 1) -> Recording:
    """A run whose batches were waited for so long, and took so long to make; each is given when it is made."""
    recording, now = Recording(num_warm=num_warm), 0.0
    for step, (wait, making) in enumerate([(0.01, 0.01), *waits]):
        now += wait
        timing = BatchTiming(1, 0, step, 0, now - making, now)
        recording.records.append(BatchRecord(timing, 0, now - wait, now, None, 4, True))  # type: ignore[arg-type]
    return recording


def figures(waits: list[tuple[float, float]]) -> RunFigures:
    recording = recorded(waits)
    return figures_of(recording, LoaderSettings(), 2.0, NO_PROBE, is_trained=False)


def test_a_wait_in_which_nobody_makes_the_batch_is_not_for_its_making() -> None:
    found = figures([(0.010, 0.002)] * 11)  # eight of ten milliseconds before a worker began with it
    assert found.ready_seconds == pytest.approx(10 * 0.008)
    assert found.uneven_seconds == 0


def test_long_waits_for_batches_that_take_as_long_as_all_others_are_not_uneven() -> None:
    found = figures([(0.0001, 0.002), (0.02, 0.002)] * 10 + [(0.0001, 0.002)])
    assert found.uneven_seconds == 0


def test_long_waits_for_batches_that_take_long_are_uneven_all_but_the_longest() -> None:
    found = figures([(0.002, 0.002)] * 20 + [(0.3, 0.3), (0.2, 0.25)])
    assert found.uneven_seconds == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("num", "num_warm", "counted"),
    [
        (30, 10, 20),  # enough after the workers were warm
        (20, 16, 19),  # enough only from the first batch on
        (6, 4, 2),  # not enough either way
    ],
)
def test_a_short_run_counts_from_its_first_batch_where_only_that_is_enough(
    num: int, num_warm: int, counted: int
) -> None:
    settings = LoaderSettings(workers=2, lookahead=2)
    recording = recorded([(0.03, 0.03)] * (num - 1), num_warm)
    recording.count_enough(settings)
    assert figures_of(recording, settings, 2.0, NO_PROBE, is_trained=False).num_batches == counted


def test_bytes_that_were_copied_while_workers_got_warm_count_with_their_batches() -> None:
    copied = iter([100, 150, 400])  # at the first batch, when the workers are warm, and at the end
    recording = recorded([(0.03, 0.03)] * 19)
    records, recording.records = recording.records, []
    recording.count_copied = lambda: next(copied)
    with recording.measuring():
        recording.records = records[:16]
        recording.begin_counting()
        recording.records = records
    assert (recording.num_warm, recording.copied_bytes) == (16, 250)
    num_readings = len(recording.memory)
    recording.count_enough(LoaderSettings(workers=2, lookahead=2))
    assert (recording.num_warm, recording.copied_bytes, recording.memory_from) == (1, 300, 0)
    assert num_readings >= 3
