"""Statistics of a plan, measured on planned windows, not estimated; for shards in use, an upper bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from playhead.index.table import Table
from playhead.inspect.shard_peak import ShardPeak, shard_peaks
from playhead.plan.form import bucket_of
from playhead.plan.groups import padded_costs, total_lengths
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, PackRule, effective
from playhead.plan.segments import Stream, round_end, segment_at
from playhead.plan.window import Window
from playhead.types import IntArray

_NUM_BINS = 16


@dataclass(frozen=True)
class SourceShare:
    """A source in the stream: its share of samples and of length, and how many steps take it through once.

    Those are steps of the whole stream, the ones that go to other sub-streams included; None where no draw of it was
    seen.
    """

    name: str
    num_rows: int
    samples_share: float
    length_share: float | None
    steps_per_epoch: float | None


@dataclass(frozen=True)
class LengthBin:
    """The samples with a length in [low, high], as a fraction of all."""

    low: int
    high: int
    fraction: float


@dataclass(frozen=True)
class StreamSummary:
    """A sub-stream over the windows measured.

    `fill` is real length over the length micro-batches are padded (or packed) to. `partial_cost` and `whole_step_cost`
    are the extra micro-batches, as fractions, because buckets end partly filled with their window, and because
    windows hold whole steps. `uneven_cost` is how much more than its mean the slowest lane of a step costs.
    """

    name: str
    lanes: int
    window_size: int
    num_windows: int | None
    windows_seen: int
    steps_per_window: float
    samples_per_step: float
    length_per_step: float | None
    samples_per_batch: tuple[int, float, int]
    fill: float | None
    partial_cost: float | None
    whole_step_cost: float
    uneven_cost: float | None
    idle_lanes: int
    sources: tuple[SourceShare, ...]
    lengths: tuple[LengthBin, ...]
    shard_peaks: tuple[ShardPeak, ...]


def summarise(
    plan: Plan, stream: int, max_windows: int = 4, tables: Mapping[str, Table] | None = None
) -> StreamSummary:
    """Plan the first windows of a sub-stream and measure them. `tables`, by source, have the sizes of its shards."""
    return summarise_windows(plan, stream, planned_windows(plan, stream, max_windows), tables)


def planned_windows(plan: Plan, stream: int, max_windows: int) -> list[Window]:
    """The first windows of a sub-stream; fewer where its first round ends before."""
    last = round_end(plan.streams[stream], 0)
    return [plan.window(stream, number) for number in range(min(max_windows, last or max_windows))]


def summarise_windows(
    plan: Plan, stream: int, windows: list[Window], tables: Mapping[str, Table] | None = None
) -> StreamSummary:
    """The same of windows that are planned already."""
    segment = segment_at(plan.streams[stream], 0)
    num_steps = sum(window.num_steps for window in windows)
    sizes = np.concatenate([window.groups.sizes() for window in windows])
    busy = sizes[sizes > 0]
    num_samples = int(sizes.sum())
    lengths = _all_lengths(windows)
    formed = sum(window.num_formed for window in windows)
    return StreamSummary(
        name=plan.streams[stream].name,
        lanes=segment.lanes,
        window_size=segment.window_size,
        num_windows=round_end(plan.streams[stream], 0),
        windows_seen=len(windows),
        steps_per_window=num_steps / len(windows),
        samples_per_step=num_samples / num_steps,
        length_per_step=None if lengths is None else float(lengths.sum()) / num_steps,
        samples_per_batch=(int(busy.min()), float(busy.mean()), int(busy.max())),
        fill=_fill(windows),
        partial_cost=_partial_cost(windows),
        whole_step_cost=max(0, len(sizes) - formed) / formed,
        uneven_cost=_uneven_cost(windows),
        idle_lanes=int((sizes == 0).sum()),
        sources=_sources(plan.streams[stream], windows, num_steps / _turns(plan, stream)),
        lengths=() if lengths is None else length_bins(lengths),
        shard_peaks=shard_peaks(plan.streams[stream], tables or {}),
    )


def _all_lengths(windows: list[Window]) -> IntArray | None:
    found = [window.lengths for window in windows if window.lengths is not None]
    return np.concatenate(found) if found else None


def length_bins(lengths: IntArray) -> tuple[LengthBin, ...]:
    """A histogram of at most 16 bins: of equal width for narrow ranges, else each a constant factor wider."""
    low, high = int(lengths.min()), int(lengths.max()) + 1
    spaced = np.linspace if high - low <= _NUM_BINS or high <= 4 * low else np.geomspace
    edges = np.unique(np.round(spaced(low, high, _NUM_BINS + 1)).astype(np.int64))
    counts, _ = np.histogram(lengths, edges)
    return tuple(
        LengthBin(int(a), int(b) - 1, float(count / len(lengths)))
        for a, b, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )


def _turns(plan: Plan, stream: int) -> float:
    """The share of steps in which a sub-stream is active."""
    return 1.0 if plan.fuse is None else int(plan.fuse.shares[stream]) / plan.fuse.total


def _sources(stream: Stream, windows: list[Window], num_steps: float) -> tuple[SourceShare, ...]:
    source = np.concatenate([window.picks.source for window in windows])
    lengths = _all_lengths(windows)
    counts = np.bincount(source, minlength=len(stream.orders))
    sums = None if lengths is None else np.bincount(source, lengths, minlength=len(stream.orders))
    return tuple(
        SourceShare(
            name,
            order.num_rows,
            float(counts[i] / counts.sum()),
            None if sums is None else float(sums[i] / sums.sum()),
            float(order.num_rows * num_steps / counts[i]) if counts[i] else None,
        )
        for i, (name, order) in enumerate(zip(stream.source_names, stream.orders, strict=True))
    )


def _fill(windows: list[Window]) -> float | None:
    real = padded = 0
    for window in windows:
        if window.lengths is None:
            return None
        real += int(window.lengths.sum())
        if isinstance(window.rule, PackRule):
            totals = total_lengths(window.groups, window.lengths)
            padded += int(np.maximum(totals, window.rule.max_length)[window.groups.sizes() > 0].sum())
        else:
            padded += int(padded_costs(window.groups, window.lengths).sum())
    return real / padded


def _partial_cost(windows: list[Window]) -> float | None:
    """Formed micro-batches against the samples of each bucket over its size."""
    ideal = formed = 0.0
    for window in windows:
        rule = window.rule
        if not isinstance(rule, BucketRule) or window.lengths is None:
            return None
        buckets = bucket_of(rule, window.lengths, window.outputs)
        counts = np.bincount(buckets, minlength=len(rule.sizes) + 1)
        ideal += float((counts / np.array([*rule.sizes, 1])).sum())
        formed += window.num_formed
    return formed / ideal - 1


def _uneven_cost(windows: list[Window]) -> float | None:
    highest = mean = 0.0
    for window in windows:
        if window.lengths is None:
            return None
        if isinstance(window.rule, PackRule):
            costs = total_lengths(window.groups, window.lengths)
        else:
            costs = padded_costs(window.groups, effective(window.rule, window.lengths))
        steps = costs.reshape(window.num_steps, window.lanes)
        highest += float(steps.max(axis=1).sum())
        mean += float(steps.mean(axis=1).sum())
    return highest / mean - 1
