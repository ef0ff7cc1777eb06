"""Weights against the sizes of the sources, and against the steps that are planned."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from playhead.index.table import Table
from playhead.order import blend as blending
from playhead.order.picks import counters_at
from playhead.plan.plan import Plan
from playhead.plan.segments import Stream
from playhead.recipe.tree import Branch, Leaf, branches
from playhead.recipe.values import Group, Source
from playhead.resolve.weights import sample_weights
from playhead.verify.checks.context import Context
from playhead.verify.checks.finding import Problem
from playhead.verify.checks.registry import check
from playhead.verify.checks.wording import listed

_MOST_EPOCHS = 4.0  # beyond it, repeating data is worth little: Muennighoff et al., 2023
_FAR = 20.0
_ROUNDING = 0.005


@dataclass(frozen=True)
class _Drawn:
    """How often the planned steps draw a source, and its rows."""

    leaf: Leaf
    draws: int
    num_rows: int


def _drawn(context: Context) -> list[_Drawn]:
    """What the planned steps draw of each source. Parts of one source are added up."""
    plan, steps = context.plan, context.options.steps
    assert isinstance(plan, Plan)
    assert steps is not None
    turns = [steps] * len(plan.streams) if plan.fuse is None else blending.counts_at(plan.fuse, steps).tolist()
    draws: dict[str, int] = defaultdict(int)
    rows: dict[str, int] = defaultdict(int)
    leaves = {leaf.source.name: leaf for stream in context.streams for leaf in stream.leaves}
    for stream, measured, turn in zip(plan.streams, context.streams, turns, strict=True):
        reached = _reached(stream, round(turn * measured.summary.samples_per_step))
        for name, order, count in zip(stream.source_names, stream.orders, reached, strict=True):
            draws[name] += count
            rows[name] += order.num_rows
    return [_Drawn(leaf, draws[name], rows[name]) for name, leaf in leaves.items()]


def _reached(stream: Stream, draw: int) -> list[int]:
    """How often each source has been drawn before a draw, or before the end of the stream."""
    pieces = stream.segments[0].pieces
    stop = _end(stream)
    draw = draw if stop is None else min(draw, stop)
    piece = pieces[max(0, bisect_right([piece.first_draw for piece in pieces], draw) - 1)]
    found: list[int] = counters_at(piece, draw).tolist()
    return found


def _end(stream: Stream) -> int | None:
    """The draw at which the first round of a stream ends; None where it is endless."""
    pieces = stream.segments[0].pieces
    return pieces[-1].stop_draw if stream.epochs is None else stream.epochs * pieces[0].blend.pass_draws


@check("PH032", "warning", "a source is repeated more than 4 times within the planned steps", "recipe", "plan", "steps")
def repeated_sources(context: Context) -> Iterator[Problem]:
    for drawn in _drawn(context):
        epochs = drawn.draws / drawn.num_rows
        if epochs > _MOST_EPOCHS:
            times = f"{epochs:,.1f}" if epochs < 100 else f"{epochs:,.0f}"
            yield Problem(
                _weight_of(drawn.leaf),
                f'"{drawn.leaf.source.name}" is seen {times} times within the planned steps',
                found=f"{drawn.draws:,} draws of {drawn.num_rows:,} rows in {context.options.steps:,} steps",
                expected=f"{_MOST_EPOCHS:g} times at most: repeating more often teaches little",
                fix="lower its weight, add data, or plan fewer steps",
            )


@check("PH033", "warning", "a source is never drawn within the planned steps", "recipe", "plan", "steps")
def unreached_sources(context: Context) -> Iterator[Problem]:
    for drawn in _drawn(context):
        if drawn.draws == 0:
            yield Problem(
                _weight_of(drawn.leaf),
                f'"{drawn.leaf.source.name}" is never drawn within the planned steps',
                found=f"no draw of its {drawn.num_rows:,} rows in {context.options.steps:,} steps",
                fix="raise its weight, or remove the source",
            )


@check("PH034", "warning", "the stream ends before the planned steps", "recipe", "plan", "steps")
def early_end(context: Context) -> Iterator[Problem]:
    plan, steps = context.plan, context.options.steps
    assert isinstance(plan, Plan)
    assert steps is not None
    ends = []
    for stream, measured in zip(plan.streams, context.streams, strict=True):
        stop = _end(stream)
        share = 1.0 if plan.fuse is None else int(plan.fuse.shares[measured.number]) / plan.fuse.total
        if stop is not None:
            ends.append((stop / measured.summary.samples_per_step / share, stream.name))
    if ends and min(ends)[0] < steps:
        last, name = min(ends)
        yield Problem(
            "epochs" if context.recipe.epochs is not None else "exhaustion",
            "the stream ends before the planned steps",
            found=f"about {last:,.0f} steps, for {name} ends there",
            expected=f"{steps:,} steps",
            fix="plan fewer steps, raise `epochs`, or write `exhaustion: repeat`",
        )


@check("PH035", "warning", "a weight is far from the size of its source", "recipe", "tables")
def far_weights(context: Context) -> Iterator[Problem]:
    tables = {source.leaf.path: source.table for source in context.trained}
    for branch in branches(context.recipe):
        leaves = branch.leaves()
        if context.recipe.epochs is not None or len(leaves) == 1 or any(leaf.path not in tables for leaf in leaves):
            continue
        unit = "length" if branch.weights_in == "length" else "rows"
        for leaf, share, size in _shares(branch, tables):
            if not 1 / _FAR <= share / size <= _FAR:
                yield Problem(
                    _weight_of(leaf),
                    f'the weight of "{leaf.source.name}" is far from its size',
                    found=f"{share:.2%} of the stream, and {size:.2%} of the {unit}: "
                    f"{max(share / size, size / share):,.0f} times {'more' if share > size else 'less'}",
                    expected=f"within {_FAR:g} times of its size",
                    fix="check the weight: is it a share, and not a count? Else accept this with --ignore",
                )


def _shares(branch: Branch, tables: dict[str, Table]) -> Iterator[tuple[Leaf, float, float]]:
    """Each source with its share of the stream and its share of the data, both in what weights are stated in."""
    weights = sample_weights(branch, tables)
    in_length = branch.weights_in == "length"
    sizes = {path: float(tables[path].length_sum if in_length else tables[path].num_rows) or 1.0 for path in weights}
    drawn = {
        path: float(weight) * (sizes[path] / tables[path].num_rows if in_length else 1)
        for path, weight in weights.items()
    }
    for leaf in branch.leaves():
        yield leaf, drawn[leaf.path] / sum(drawn.values()), sizes[leaf.path] / sum(sizes.values())


@check("PH036", "note", "weights are fractions that do not add up to 1", "recipe")
def weights_short_of_one(context: Context) -> Iterator[Problem]:
    for place, entries in _lists("sources", context.recipe.sources):
        weights = [entry.weight for entry in entries if entry.weight is not None]
        if len(weights) > 1 and max(weights) < 1 and abs(sum(weights) - 1) > _ROUNDING:
            yield Problem(
                place,
                "the weights of a list are fractions, and do not add up to 1",
                found=f"{listed((f'{weight:g}' for weight in weights), 8)}: {sum(weights):g} in all",
                expected="1, if they are shares; they are used in proportion all the same",
                fix="check whether a source is missing from the list, or left in by mistake",
            )


def _lists(place: str, entries: list[Source | Group]) -> Iterator[tuple[str, list[Source | Group]]]:
    yield place, entries
    for i, entry in enumerate(entries):
        if isinstance(entry, Group):
            yield from _lists(f"{place}[{i}].sources", entry.sources)


def _weight_of(leaf: Leaf) -> str:
    return f"{leaf.path}.weight"
