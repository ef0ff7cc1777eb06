"""What a run was waiting for, from records whose times are given."""

from __future__ import annotations

import pytest

from playhead.feed.stats import BatchTiming
from playhead.inspect.bench.figures import figures_of
from playhead.inspect.bench.recording import BatchRecord, Recording
from playhead.inspect.bench.storage_probe import StorageProbe
from playhead.inspect.bench.values import LoaderSettings, RunFigures


def figures(waits: list[tuple[float, float]]) -> RunFigures:
    """Of a run whose batches were waited for so long, and took so long to make; each is given when it is made."""
    recording, now = Recording(num_warm=1), 0.0
    for step, (wait, making) in enumerate([(0.01, 0.01), *waits]):
        now += wait
        timing = BatchTiming(1, 0, step, 0, now - making, now)
        recording.records.append(BatchRecord(timing, 0, now - wait, now, None, 4, True))  # type: ignore[arg-type]
    return figures_of(recording, LoaderSettings(), 2.0, StorageProbe(0.0, 0.0), is_trained=False)


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
