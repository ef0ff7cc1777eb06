"""The figures of `playhead plan` against the slow, obvious computation over steps."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora import lengths_of, plan_in, real_batches, write_speech, write_text
from playhead.inspect.summary import StreamSummary, length_bins, summarise
from playhead.plan.plan import Plan
from playhead.plan.step import Step
from playhead.recipe.units import longest_within

BATCHINGS: dict[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 900},
    "quadratic": {"type": "budget", "budget": 900, "quadratic": 600},
    "bucket": {"type": "bucket", "edges": [40, 90, 400], "size": [9, 5, 2]},
    "pack": {"type": "pack", "max_length": 450},
    "alone": {"type": "pack", "max_length": 200, "overlong": "alone"},
    "truncate": {"type": "bucket", "edges": [40, 90], "size": [9, 5], "overlong": "truncate"},
}
WINDOWS = 3


def windows_of(plan: Plan, count: int) -> list[Step]:
    """All steps of the first windows."""
    num_steps = sum(plan.window(0, number).num_steps for number in range(count))
    return [step for step, _ in islice(plan.steps(), num_steps)]


def summary_and_steps(folder: Path, kind: str, **fields: Any) -> tuple[StreamSummary, list[Step]]:
    longest = longest_within(900, 600) if kind == "quadratic" else 400
    a, b = (
        write_text(folder, "a", lengths_of(1, 3, 20, longest)),
        write_text(folder, "b", lengths_of(2, 1, 30, longest)),
    )
    rules = {"weights_in": "samples", "window_size": 96, "lanes": 4, "batching": BATCHINGS[kind]}
    plan = plan_in(folder, {**a, "weight": 2}, {**b, "weight": 1}, **{**rules, **fields})
    summary = summarise(plan, 0, WINDOWS)
    return summary, windows_of(plan, summary.windows_seen)


@pytest.mark.parametrize("kind", BATCHINGS)
def test_what_a_step_holds(tmp_path: Path, kind: str) -> None:
    summary, steps = summary_and_steps(tmp_path, kind)
    batches = real_batches(steps)
    sizes = [len(batch.picks) for batch in batches]
    assert summary.windows_seen == WINDOWS
    assert summary.steps_per_window == len(steps) / WINDOWS
    assert summary.samples_per_step == sum(sizes) / len(steps)
    assert summary.length_per_step == sum(int(batch.lengths.sum()) for batch in batches) / len(steps)
    assert summary.samples_per_batch == (min(sizes), pytest.approx(sum(sizes) / len(sizes)), max(sizes))
    assert (summary.lanes, summary.window_size, summary.num_windows) == (4, 96, None)
    assert summary.idle_lanes == 0


@pytest.mark.parametrize("kind", BATCHINGS)
def test_shares_and_steps_to_an_epoch(tmp_path: Path, kind: str) -> None:
    summary, steps = summary_and_steps(tmp_path, kind)
    counts, lengths = Counter(), Counter()
    for batch in real_batches(steps):
        for source, length in zip(batch.picks.source.tolist(), batch.lengths.tolist(), strict=True):
            counts["ab"[source]] += 1
            lengths["ab"[source]] += length
    for source, num_rows in zip(summary.sources, (69, 30), strict=True):
        assert source.num_rows == num_rows
        assert source.samples_share == pytest.approx(counts[source.name] / counts.total())
        assert source.length_share == pytest.approx(lengths[source.name] / lengths.total())
        assert source.steps_per_epoch == pytest.approx(num_rows / (counts[source.name] / len(steps)))


@pytest.mark.parametrize("kind", BATCHINGS)
def test_fill_and_the_slowest_lane(tmp_path: Path, kind: str) -> None:
    summary, steps = summary_and_steps(tmp_path, kind)
    real = padded = highest = mean = 0
    quadratic = BATCHINGS[kind].get("quadratic")
    for step in steps:
        costs = []
        for batch in step.micro_batches:
            lengths = batch.lengths.tolist()
            real += sum(lengths)
            if BATCHINGS[kind]["type"] == "pack":
                padded += max(sum(lengths), BATCHINGS[kind]["max_length"])
                costs.append(sum(lengths))
            else:
                padded += len(lengths) * max(lengths)
                bent = [n + ceil(n * n / quadratic) for n in lengths] if quadratic else lengths
                costs.append(len(lengths) * max(bent))
        highest += max(costs)
        mean += sum(costs) / len(costs)
    assert summary.fill == pytest.approx(real / padded)
    assert summary.uneven_cost == pytest.approx(highest / mean - 1)


@pytest.mark.parametrize("kind", ["bucket", "truncate"])
def test_what_partial_buckets_and_whole_steps_cost(tmp_path: Path, kind: str) -> None:
    summary, steps = summary_and_steps(tmp_path, kind)
    edges, sizes = BATCHINGS[kind]["edges"], BATCHINGS[kind]["size"]
    ideal = formed = taken = 0
    for window in range(WINDOWS):
        draws = [n for step in steps[taken:] for batch in step.micro_batches for n in batch.lengths.tolist()][:96]
        counts = Counter(next(i for i, edge in enumerate(edges) if n <= edge) for n in draws)
        ideal += sum(counts[i] / size for i, size in enumerate(sizes))
        formed += sum(ceil(counts[i] / size) for i, size in enumerate(sizes))
        held = 0
        while held < 96:
            held += sum(batch.num_samples for batch in steps[taken].micro_batches)
            taken += 1
        assert held == 96, window
    assert summary.partial_cost == pytest.approx(formed / ideal - 1)
    assert summary.whole_step_cost == pytest.approx(4 * len(steps) / formed - 1)


def test_only_buckets_have_partial_ones(tmp_path: Path) -> None:
    summary, _ = summary_and_steps(tmp_path, "pack")
    assert summary.partial_cost is None


@pytest.mark.parametrize("kind", ["fixed", "pack"])
def test_a_finite_stream_is_measured_to_its_end_idle_lanes_counted(tmp_path: Path, kind: str) -> None:
    a = write_text(tmp_path, "a", [[100] * 98])
    plan = plan_in(tmp_path, a, batching=BATCHINGS[kind], lanes=32, window_size=96, epochs=1)
    summary, steps = summarise(plan, 0, 5), windows_of(plan, 2)
    assert (summary.num_windows, summary.windows_seen) == (2, 2)
    idle = [batch for step in steps for batch in step.micro_batches if batch.idle]
    assert summary.idle_lanes == len(idle) == 30
    assert summary.samples_per_step == pytest.approx(98 / len(steps))
    assert summary.samples_per_batch[0] == 1


def test_without_lengths_what_needs_them_is_left_out(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", [[5] * 20])
    source.pop("length")
    summary = summarise(plan_in(tmp_path, source), 0)
    assert (summary.fill, summary.length_per_step, summary.uneven_cost, summary.lengths) == (None, None, None, ())
    assert summary.sources[0].length_share is None


def test_a_source_not_seen_yet_has_no_steps_to_an_epoch(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", [[5] * 20]), write_text(tmp_path, "b", [[5] * 20])
    summary = summarise(plan_in(tmp_path, {**a, "weight": 1}, {**b, "weight": 1e-5}), 0, 1)
    assert [source.steps_per_epoch for source in summary.sources] == [5.0, None]


def test_steps_to_an_epoch_count_the_steps_of_other_sub_streams(tmp_path: Path) -> None:
    text, speech = write_text(tmp_path, "a", [[5] * 64]), write_speech(tmp_path, "s", [[1.0] * 32])
    batching = {"type": "fixed", "size": 2}
    groups = [{"name": f"{s['name']}s", "batching": batching, "sources": [s]} for s in (text, speech)]
    plan = plan_in(tmp_path, *groups, lanes=2, fuse={"as": 3, "ss": 1})
    epochs = [summarise(plan, i).sources[0].steps_per_epoch for i in range(2)]
    assert epochs == pytest.approx([64 / 4 * 4 / 3, 32 / 4 * 4])


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=60))
def test_the_histogram_of_lengths_counts_every_sample_once(lengths: list[int]) -> None:
    bins = length_bins(np.array(lengths))
    assert len(bins) <= 16
    assert bins[0].low == min(lengths)
    assert bins[-1].high == max(lengths)
    assert all(after.low == before.high + 1 for before, after in pairwise(bins))
    for each in bins:
        assert each.fraction == pytest.approx(sum(each.low <= n <= each.high for n in lengths) / len(lengths))
