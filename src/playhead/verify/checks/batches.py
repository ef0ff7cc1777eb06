"""Batches as planned: what is too long for them, buckets, padding, the costliest one, and windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from playhead.errors import PlayheadError
from playhead.formats.registry import format_of
from playhead.formats.rows import Fetch
from playhead.formats.tokens import field_of
from playhead.index.histogram import lower_bounds
from playhead.order import blend as blending
from playhead.plan.form import bucket_of
from playhead.plan.groups import padded_costs, total_lengths
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, PackRule, effective
from playhead.plan.window import Window
from playhead.recipe.tree import Leaf, branches
from playhead.recipe.units import readable
from playhead.types import IntArray
from playhead.verify.checks.context import Context, MeasuredStream, PreparedSource
from playhead.verify.checks.finding import Problem, problem_of
from playhead.verify.checks.registry import check
from playhead.verify.checks.wording import counted, id_field

_MUCH_LOST = 0.1
_LITTLE_FILL = 0.6
_FEWEST_STEPS = 8
_COSTLY_STEPS = 0.05


@check(
    "PH040", "error", "samples are longer than a micro-batch holds, or many are lost to its limit", "recipe", "tables"
)
def overlong_samples(context: Context) -> Iterator[Problem]:
    for source in context.prepared:
        error = context.overlong.get(source.leaf.path)
        if error is not None:
            yield problem_of(error, source.leaf.path)
            continue
        rows, lost, size = _lost(source)
        if max(rows / size, lost) > _MUCH_LOST:
            yield Problem(
                f"{source.leaf.batching_path}.overlong",
                f'much of "{source.name}" is longer than a micro-batch holds',
                found=f"`overlong: {source.leaf.batching.overlong}` concerns {rows / size:.1%} of its rows"
                + (f", and {lost:.1%} of its length" if lost else ""),
                fix="raise the limit, or cut such samples before they are indexed",
                severity="warning",
            )


def _lost(source: PreparedSource) -> tuple[int, float, int]:
    """The rows beyond the limit, the share of the length that is lost to it, and all rows."""
    table, limit = source.table, source.leaf.limit
    if source.leaf.batching.overlong == "drop":
        losses = [loss for loss in table.selection.meta.losses if loss.rule.startswith("overlong")]
        rows, length = sum(loss.num_rows for loss in losses), sum(loss.length for loss in losses)
        return rows, length / max(1, length + table.length_sum), table.num_rows + rows
    if limit is None or table.histogram is None or table.longest is None or table.longest[1] <= limit:
        return 0, 0.0, table.num_rows
    rows, length = _beyond(source, limit)
    return (
        rows,
        length / max(1, table.length_sum) if source.leaf.batching.overlong == "truncate" else 0.0,
        table.num_rows,
    )


def _beyond(source: PreparedSource, limit: int) -> tuple[int, int]:
    """The rows longer than a limit, by the histogram, and the length beyond it."""
    histogram = source.table.histogram
    assert histogram is not None
    over = lower_bounds() > limit
    rows = int(histogram.counts[over].sum())
    return rows, int(histogram.sums[over].sum()) - rows * limit


@check("PH041", "warning", "a bucket is empty, or a window never fills a micro-batch of it", "recipe", "plan")
def starved_buckets(context: Context) -> Iterator[Problem]:
    for stream in context.streams:
        rule = stream.windows[0].rule
        if not isinstance(rule, BucketRule):
            continue
        counts = _per_window(stream, rule)
        empty = [i for i in range(len(rule.edges)) if counts[i] == 0]
        starved = [i for i in range(len(rule.edges)) if 0 < counts[i] < rule.sizes[i]]
        for what, found, fix in (
            ("are empty", empty, "remove their edges, or lower `num`"),
            ("are never filled", starved, "use fewer buckets or a smaller `size`, or raise `window_size`"),
        ):
            if found:
                yield Problem(
                    stream.leaves[0].batching_path,
                    f"{len(found)} of {len(rule.edges)} buckets of {stream.summary.name} {what} in a window",
                    "; ".join(_bucket(rule, i, counts, stream.leaves[0]) for i in found[:4]),
                    "a full micro-batch of each in every window",
                    fix,
                )


def _per_window(stream: MeasuredStream, rule: BucketRule) -> list[float]:
    """The samples of each bucket in a window, on average."""
    counts = np.zeros(len(rule.edges) + 1, np.int64)
    for window in stream.windows:
        assert window.lengths is not None
        counts += np.bincount(bucket_of(rule, window.lengths, window.outputs), minlength=len(counts))
    found: list[float] = (counts / len(stream.windows)).tolist()
    return found


def _bucket(rule: BucketRule, i: int, counts: list[float], leaf: Leaf) -> str:
    edge = readable(rule.edges[i], leaf.unit)
    if rule.output_edges is not None:
        edge += f" x {readable(rule.output_edges[i], leaf.output_unit)}"
    return f"up to {edge}: {counts[i]:,.1f} samples in a window, {rule.sizes[i]:,} to a micro-batch"


@check("PH042", "note", "how full batches are; a warning where padding is more than 40 %", "recipe", "plan")
def padding(context: Context) -> Iterator[Problem]:
    for stream in context.streams:
        fill, rule = stream.summary.fill, stream.windows[0].rule
        if fill is None:
            continue
        much = fill < _LITTLE_FILL
        packs = isinstance(rule, PackRule)
        yield Problem(
            stream.leaves[0].batching_path,
            f"{1 - fill:.1%} of the {'packs' if packs else 'batches'} of {stream.summary.name} is padding",
            found=f"{fill:.1%} real length, measured on {counted(len(stream.windows), 'window')} of the plan",
            fix=None if not much else "use longer packs" if packs else "use `bucket`, more buckets, or `pack`",
            severity="warning" if much else "note",
        )


@dataclass(frozen=True)
class _Costliest:
    """A micro-batch of a window, its cost, and its longest sample, by its position among the picks of the window."""

    window: Window
    number: int
    cost: int
    longest: int
    length: int

    @property
    def size(self) -> int:
        return int(self.window.groups.sizes()[self.number])


@check("PH043", "note", "the costliest micro-batch: the first candidate to run out of memory", "recipe", "plan")
def costliest_batch(context: Context) -> Iterator[Problem]:
    for stream in context.streams:
        found = max(filter(None, map(_costliest, stream.windows)), key=lambda batch: batch.cost, default=None)
        if found is None:
            continue
        window, unit = found.window, stream.leaves[0].unit
        leaf = stream.leaves[int(window.picks.source[found.longest])]
        row = int(window.picks.row[found.longest])
        source = next(source for source in context.trained if source.leaf.path == leaf.path)
        yield Problem(
            stream.leaves[0].batching_path,
            f"the costliest micro-batch of {stream.summary.name}: {counted(found.size, 'sample')}, "
            f"the longest of {readable(found.length, unit)}",
            found=f"{_step_and_lane(context, stream, found)}, cost {readable(found.cost, unit)}; "
            f"its longest is {_sample_id(context, source, row)}",
            fix="if it fits into memory, the others do: `playhead plan --step` lists its samples",
        )


def _step_and_lane(context: Context, stream: MeasuredStream, found: _Costliest) -> str:
    """Where a micro-batch is in the whole stream."""
    plan = context.plan
    assert isinstance(plan, Plan)
    step, lane = divmod(found.number, found.window.lanes)
    step += sum(window.num_steps for window in stream.windows if window.number < found.window.number)
    if plan.fuse is not None:
        return f"step {blending.draw_of(plan.fuse, stream.number, step):,}, lane {lane}"
    if plan.interleaved:
        return f"step {step:,}, lane {lane * len(plan.streams) + stream.number}"
    return f"step {step:,}, lane {lane + sum(plan.streams[i].segments[0].lanes for i in range(stream.number))}"


def _costliest(window: Window) -> _Costliest | None:
    if window.lengths is None:
        return None
    costs = _costs(window, window.lengths)
    number = int(costs.argmax())
    members = window.groups.members[window.groups.starts[number] : window.groups.starts[number + 1]]
    longest = int(members[window.lengths[members].argmax()])
    return _Costliest(window, number, int(costs[number]), longest, int(window.lengths[longest]))


def _costs(window: Window, lengths: IntArray) -> IntArray:
    """What each micro-batch costs by the rule: its length padded, the quadratic term included."""
    if isinstance(window.rule, PackRule):
        return total_lengths(window.groups, lengths)
    return padded_costs(window.groups, effective(window.rule, lengths))


def _sample_id(context: Context, source: PreparedSource, row: int) -> str:
    """A sample by its id, where it can be read and has one, and by its row."""
    leaf, table = source.leaf, source.table
    where = f'row {row:,} of "{leaf.source.name}" ({table.place(row)})'
    try:
        reader = format_of(leaf.source, leaf.path).format.open(leaf.source, context.files)
        (sample,) = reader.read(table.locate(np.array([row]), Fetch(context.files, table.index.stamps)))
        found = field_of(sample, id_field(leaf))
    except PlayheadError:
        return where
    return f'"{found}", {where}' if isinstance(found, str | int) else where


@check("PH044", "warning", "a window holds so few steps that whole steps split many micro-batches", "recipe", "plan")
def small_windows(context: Context) -> Iterator[Problem]:
    for stream in context.streams:
        summary = stream.summary
        if summary.num_windows == 1:
            continue
        if summary.steps_per_window < _FEWEST_STEPS or summary.whole_step_cost > _COSTLY_STEPS:
            given = _given_window(context, stream)
            yield Problem(
                given or stream.leaves[0].batching_path,
                f"the windows of {summary.name} are small for {counted(summary.lanes, 'lane')}",
                found=f"{summary.window_size:,} draws, {summary.steps_per_window:,.1f} steps; whole steps cost "
                f"{summary.whole_step_cost:.1%} more micro-batches",
                expected=f"{_FEWEST_STEPS} steps or more in a window, and less than {_COSTLY_STEPS:.0%} more",
                fix="remove `window_size`, or raise it"
                if given
                else "raise `shuffle_group`, which bounds the window, or add data; or use fewer lanes or buckets",
            )


def _given_window(context: Context, stream: MeasuredStream) -> str | None:
    """Where the recipe gives the window size of a sub-stream; None where it does not."""
    found = branches(context.recipe)
    branch = found[min(stream.number, len(found) - 1)]
    if branch.window_size is None:
        return None
    return "window_size" if context.recipe.window_size is not None else f"{branch.root.path}.window_size"
