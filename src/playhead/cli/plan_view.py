"""The plan on the terminal or as JSON."""

from __future__ import annotations

from dataclasses import asdict, replace

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from playhead.cli.screen import bar, console, count, grid, labelled, percent, print_json
from playhead.index.table import Table
from playhead.inspect.locality import SourceShuffles, source_shuffles
from playhead.inspect.node_bytes import Nodes
from playhead.inspect.reading import reading_warnings
from playhead.inspect.summary import LengthBin, StreamSummary, summarise
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, Rule, rule_name
from playhead.recipe.tree import Leaf, branches, evaluation_branch
from playhead.recipe.units import readable, whole_unit
from playhead.recipe.values import Recipe, Unit

_BAR_WIDTH = 40


def print_plan(
    recipe: Recipe,
    plan: Plan,
    tables: dict[str, Table],
    split: str | None,
    windows: int,
    *,
    as_json: bool,
    lengths: bool = True,
    read: Nodes | None = None,
) -> None:
    """The plan, measured on some windows; as text with a histogram of lengths, unless they are left out.

    `read` is what a node reads. Shuffles are compared for training alone: evaluation sets are read in file order.
    """
    by_name = {table.name: table for table in tables.values()}
    summaries = [summarise(plan, i, windows, by_name) for i in range(len(plan.streams))]
    leaves = _first_leaves(recipe, split, len(plan.streams))
    rules = [stream.segments[0].rule for stream in plan.streams]
    warnings = reading_warnings(recipe, tables, split)
    compared = source_shuffles(recipe, plan, tables) if split is None and lengths else ()
    shuffles = [*compared, *[()] * (len(plan.streams) - len(compared))]
    if as_json:
        streams = [
            {"unit": whole_unit(leaf.unit), "batching": {"type": rule_name(rule).lower(), **asdict(rule)}}
            | asdict(summary)
            | {"shuffles": [asdict(source) for source in sources]}
            for leaf, rule, summary, sources in zip(leaves, rules, summaries, shuffles, strict=True)
        ]
        about = {"fingerprint": plan.fingerprint, "lanes": plan.lanes, "fuse": _turns(plan), "warnings": warnings}
        print_json({**about, "nodes": None if read is None else asdict(read), "streams": streams})
        return
    screen = console()
    for summary, leaf, rule, sources in zip(summaries, leaves, rules, shuffles, strict=True):
        _print_stream(screen, summary if lengths else replace(summary, lengths=()), leaf, rule)
        _print_shuffles(screen, sources)
        screen.print()
    if read is not None and read.num_nodes > 1:
        _print_nodes(screen, read)
    turns = _turns(plan)
    if turns is not None:
        screen.print("steps go to  " + ", ".join(f"{name} {percent(share)}" for name, share in turns.items()))
    for warning in warnings:
        labelled(screen, "warning", warning)
    screen.print(f"fingerprint  {plan.fingerprint}")


def _turns(plan: Plan) -> dict[str, float] | None:
    """The share of steps of each sub-stream, where they are fused by weight."""
    if plan.fuse is None:
        return None
    names = [stream.name for stream in plan.streams]
    return {name: share / plan.fuse.total for name, share in zip(names, plan.fuse.shares.tolist(), strict=True)}


def _print_stream(screen: Console, summary: StreamSummary, leaf: Leaf, rule: Rule) -> None:
    about = f": {_rule_text(rule, leaf.unit)}, {count(summary.lanes, 'lane')} to a step"
    screen.print(Text.assemble((summary.name, "bold"), about))
    table = grid("<source", ">rows", ">of the samples", ">of the length", ">steps to an epoch")
    for source in summary.sources:
        share = "-" if source.length_share is None else percent(source.length_share)
        epoch = "not drawn yet" if source.steps_per_epoch is None else f"{source.steps_per_epoch:,.1f}"
        table.add_row(source.name, f"{source.num_rows:,}", percent(source.samples_share), share, epoch)
    screen.print(table)
    for label, text in _facts(summary, leaf, rule):
        labelled(screen, label, text)
    if summary.lengths:
        screen.print("lengths")
        for line in _histogram(summary.lengths, leaf.unit):
            screen.print(line)


def _print_shuffles(screen: Console, sources: tuple[SourceShuffles, ...]) -> None:
    """What other shuffles would give, where a source could have another."""
    compared = [source for source in sources if len(source.shuffles) > 1 and source.num_units > 1]
    if not compared:
        return
    screen.print("mixing")
    table = grid("<source", "<shuffle", ">mixing score", ">in use at a time", ">bytes")
    for source in compared:
        for i, found in enumerate(source.shuffles):
            groups = "" if found.group is None else f", groups of {count(found.group, source.unit)}"
            name = f"{found.shuffle}{groups}{' (this recipe)' if found.chosen else ''}"
            in_use = count(found.units_in_use, source.unit)
            label = "" if i else source.name
            table.add_row(label, name, f"{found.mixing:.3f}", in_use, decimal(found.bytes_in_use))
    screen.print(table)


def _print_nodes(screen: Console, read: Nodes) -> None:
    """What a node reads of each source."""
    ranks = read.world_size // read.num_nodes
    screen.print(f"bytes that a node reads in an epoch, of {count(read.num_nodes, 'node')} with {count(ranks, 'rank')}")
    columns = (f">with parts: {read.parts}", ">without") if read.parts > 1 else (">a node",)
    table = grid("<source", ">all", *columns)
    for source in read.sources:
        without = [decimal(source.without_parts)] if read.parts > 1 else []
        table.add_row(source.name, decimal(source.num_bytes), decimal(source.with_parts), *without)
    screen.print(table)
    screen.print()


def _facts(summary: StreamSummary, leaf: Leaf, rule: Rule) -> list[tuple[str, str]]:
    least, mean, most = summary.samples_per_batch
    step = f"{summary.samples_per_step:,.1f} samples"
    if summary.length_per_step is not None:
        step += f", {_length(summary.length_per_step, leaf.unit)}"
    step += f"; micro-batches of {least:,} to {most:,} samples, {mean:,.1f} on average"
    ends = "" if summary.num_windows is None else f"; the stream ends after {count(summary.num_windows, 'window')}"
    facts = [
        ("a step", step),
        ("a window", f"{summary.window_size:,} draws, {summary.steps_per_window:,.1f} steps{ends}"),
    ]
    if isinstance(rule, BucketRule):
        facts.append(("buckets", _buckets(rule, leaf)))
    if summary.fill is not None:
        facts.append(("fill", f"{percent(summary.fill)} real length, {percent(1 - summary.fill)} padding"))
    if summary.partial_cost is not None:
        facts.append(("partial buckets", f"{percent(summary.partial_cost)} more micro-batches"))
    facts.append(("whole steps", f"{percent(summary.whole_step_cost)} more micro-batches"))
    if summary.uneven_cost is not None:
        facts.append(("slowest lane", f"costs {percent(summary.uneven_cost)} more than the mean of its step"))
    facts += [
        (
            f"{peak.unit}s in use",
            f"{peak.name}: up to {count(peak.num_shards, peak.unit)}, {decimal(peak.num_bytes)}, at a time",
        )
        for peak in summary.shard_peaks
    ]
    if summary.idle_lanes:
        facts.append(("idle lanes", f"{summary.idle_lanes:,}, at the end of the stream"))
    facts.append(("measured on", count(summary.windows_seen, "window")))
    return facts


def _histogram(bins: tuple[LengthBin, ...], unit: Unit) -> list[str]:
    labels = [f"{readable(b.low, unit)} - {readable(b.high, unit)}" for b in bins]
    width = max(len(label) for label in labels)
    top = max(b.fraction for b in bins)
    return [
        f"  {label:>{width}}  {bar(b.fraction / top, _BAR_WIDTH)} {percent(b.fraction)}"
        for label, b in zip(labels, bins, strict=True)
    ]


def _first_leaves(recipe: Recipe, split: str | None, num_streams: int) -> list[Leaf]:
    """One source of each sub-stream, for the units they share; all parts are of one."""
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    leaves = [branch.leaves()[0] for branch in chosen]
    return leaves if len(leaves) == num_streams else leaves * num_streams


def _rule_text(rule: Rule, unit: Unit) -> str:
    if isinstance(rule, FixedRule):
        return f"micro-batches of {count(rule.size, 'sample')}"
    if isinstance(rule, BudgetRule):
        quadratic = f" with quadratic term {_length(rule.quadratic, unit)}" if rule.quadratic else ""
        return f"micro-batches of up to {_length(rule.budget, unit)}, padding included{quadratic}"
    if isinstance(rule, BucketRule):
        least, most = min(rule.sizes), max(rule.sizes)
        sizes = count(most, "sample") if least == most else f"{least:,} to {most:,} samples"
        return f"{count(len(rule.edges), 'bucket')} of {sizes}"
    return f"packs of {_length(rule.max_length, unit)}"


def _buckets(rule: BucketRule, leaf: Leaf) -> str:
    """Each bucket's edge and its batch size: `up to 81 tokens: 25 samples; 150: 13`."""
    edges = [readable(edge, leaf.unit) for edge in rule.edges]
    unit = "" if leaf.unit == "seconds" else f" {leaf.unit}"
    if rule.output_edges is not None:
        ends = [readable(edge, leaf.output_unit) for edge in rule.output_edges]
        edges = [f"{edge} x {end}" for edge, end in zip(edges, ends, strict=True)]
    first, *rest = zip(edges, rule.sizes, strict=True)
    shown = [f"up to {first[0]}{unit}: {count(first[1], 'sample')}", *(f"{edge}: {size:,}" for edge, size in rest)]
    return "; ".join(shown)


def _length(value: float, unit: Unit) -> str:
    return readable(value, unit) if unit == "seconds" else f"{readable(value, unit)} {unit}"
