"""The plan, and one step of it, on the terminal or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from playhead.cli.screen import bar, console, percent, print_json
from playhead.deal import lanes_of_rank
from playhead.feed.ledger import seek
from playhead.index.table import Table
from playhead.plan.plan import Plan
from playhead.plan.rules import Bucket, Budget, Fixed, Rule
from playhead.plan.step import MicroBatch, Step
from playhead.plan.summary import LengthBin, StreamSummary, summarise
from playhead.recipe.tree import Leaf, branches, evaluation_branch
from playhead.recipe.units import for_people
from playhead.recipe.values import Recipe, Unit


def print_plan(recipe: Recipe, plan: Plan, split: str | None, windows: int, *, as_json: bool) -> None:
    summaries = [summarise(plan, i, windows) for i in range(len(plan.streams))]
    units = _units(recipe, split, len(plan.streams))
    if as_json:
        streams = [{"unit": unit, **asdict(summary)} for unit, summary in zip(units, summaries, strict=True)]
        print_json({"fingerprint": plan.fingerprint, "lanes": plan.lanes, "streams": streams})
        return
    screen = console()
    for i, (summary, unit) in enumerate(zip(summaries, units, strict=True)):
        rule = plan.streams[i].segments[0].rule
        _print_stream(screen, summary, unit, rule)
    if plan.fuse is not None:
        shares = [percent(share / plan.fuse.total) for share in plan.fuse.shares.tolist()]
        named = zip((summary.name for summary in summaries), shares, strict=True)
        screen.print("steps go to  " + ", ".join(f"{name} {share}" for name, share in named))
    screen.print(f"fingerprint  {plan.fingerprint}")


def _print_stream(screen: Console, summary: StreamSummary, unit: Unit, rule: Rule) -> None:
    screen.print(f"[bold]{summary.name}[/]: {_rule_for_people(rule, unit)}, {_count(summary.lanes, 'lane')} to a step")
    grid = Grid("source", box=None, pad_edge=False, header_style="dim")
    for title in ("rows", "of the samples", "of the length", "steps to an epoch"):
        grid.add_column(title, justify="right")
    for source in summary.sources:
        share = "-" if source.length_share is None else percent(source.length_share)
        epoch = f"{source.steps_per_epoch:,.1f}"
        grid.add_row(source.name, f"{source.num_rows:,}", percent(source.samples_share), share, epoch)
    screen.print(grid)
    for label, text in _facts(summary, unit):
        screen.print(f"{label:<16} {text}", highlight=False)
    if summary.lengths:
        screen.print("lengths")
        for line in _histogram(summary.lengths, unit):
            screen.print(line, highlight=False)
    screen.print()


def _facts(summary: StreamSummary, unit: Unit) -> list[tuple[str, str]]:
    least, mean, most = summary.samples_per_batch
    step = f"{summary.samples_per_step:,.1f} samples"
    if summary.length_per_step is not None:
        step += f", {_length(summary.length_per_step, unit)}"
    step += f"; micro-batches of {least:,} to {most:,} samples, {mean:,.1f} on average"
    ends = "" if summary.num_windows is None else f"; the stream ends after {_count(summary.num_windows, 'window')}"
    facts = [
        ("a step", step),
        ("a window", f"{summary.window_size:,} draws, {summary.steps_per_window:,.1f} steps{ends}"),
    ]
    if summary.fill is not None:
        facts.append(("fill", f"{percent(summary.fill)} real length, {percent(1 - summary.fill)} padding"))
    if summary.partial_cost is not None:
        facts.append(("partial buckets", f"{percent(summary.partial_cost)} more micro-batches"))
    facts.append(("whole steps", f"{percent(summary.whole_step_cost)} more micro-batches"))
    if summary.uneven_cost is not None:
        facts.append(("slowest lane", f"costs {percent(summary.uneven_cost)} more than the mean of its step"))
    if summary.idle_lanes:
        facts.append(("idle lanes", f"{summary.idle_lanes:,}, at the end of the stream"))
    facts.append(("measured on", _count(summary.windows_seen, "window")))
    return facts


def _histogram(bins: tuple[LengthBin, ...], unit: Unit) -> list[str]:
    labels = [f"{for_people(b.low, unit)} - {for_people(b.high, unit)}" for b in bins]
    width = max(len(label) for label in labels)
    top = max(b.fraction for b in bins)
    return [
        f"  {label:>{width}}  {bar(b.fraction / top, 40)} {percent(b.fraction)}"
        for label, b in zip(labels, bins, strict=True)
    ]


def print_step(
    recipe: Recipe,
    plan: Plan,
    tables: dict[str, Table],
    split: str | None,
    asked: tuple[int, int | None, int],
    *,
    as_json: bool,
) -> None:
    number, rank, world = asked
    found = plan.step_at(seek(recipe, plan, number))
    assert found is not None, "seek refuses a step past the end"
    step, _ = found
    lanes = range(plan.lanes) if rank is None else lanes_of_rank(rank, world, plan.lanes)
    by_name = {leaf.source.name: (leaf, tables[leaf.path]) for leaf in _leaves(recipe, split)}
    rows = [_rows_of(batch, plan, by_name) for batch in step.micro_batches if batch.lane in lanes]
    if as_json:
        receipt = None if step.receipt is None else f"{step.receipt:016x}"
        print_json({"step": step.number, "receipt": receipt, "lanes": rows})
        return
    _print_lanes(console(), step, rows)


def _rows_of(batch: MicroBatch, plan: Plan, by_name: dict[str, tuple[Leaf, Table]]) -> dict[str, Any]:
    names = plan.streams[batch.stream].source_names
    picks = []
    for i in range(len(batch.picks)):
        name = names[int(batch.picks.source[i])]
        leaf, table = by_name[name]
        row = int(batch.picks.row[i])
        length = None if batch.lengths is None else for_people(int(batch.lengths[i]), leaf.unit)
        pick = {"source": name, "epoch": int(batch.picks.epoch[i]), "row": row}
        picks.append({**pick, "length": length, "place": table.place(row)})
    return {"lane": batch.lane, "stream": plan.streams[batch.stream].name, "idle": batch.idle, "picks": picks}


def _print_lanes(screen: Console, step: Step, lanes: list[dict[str, Any]]) -> None:
    receipt = "" if step.receipt is None else f", receipt {step.receipt:016x}"
    screen.print(f"[bold]step {step.number:,}[/]{receipt}", highlight=False)
    grid = Grid(box=None, pad_edge=False, header_style="dim")
    for title, justify in (("lane", "right"), ("source", "left"), ("epoch", "right"), ("row", "right")):
        grid.add_column(title, justify=justify)  # type: ignore[arg-type]
    grid.add_column("length", justify="right")
    grid.add_column("place", overflow="fold")
    for lane in lanes:
        for i, pick in enumerate(lane["picks"]):
            label = "" if i else f"{lane['lane']}{' (idle)' if lane['idle'] else ''}"
            row = (pick["source"], f"{pick['epoch']:,}", f"{pick['row']:,}", pick["length"] or "-", pick["place"])
            grid.add_row(label, *row)
    screen.print(grid)


def _leaves(recipe: Recipe, split: str | None) -> list[Leaf]:
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    return [leaf for branch in chosen for leaf in branch.leaves()]


def _units(recipe: Recipe, split: str | None, num_streams: int) -> list[Unit]:
    chosen = branches(recipe) if split is None else (evaluation_branch(recipe, split),)
    units = [branch.leaves()[0].unit for branch in chosen]
    return units if len(units) == num_streams else units * num_streams


def _rule_for_people(rule: Rule, unit: Unit) -> str:
    if isinstance(rule, Fixed):
        return f"micro-batches of {_count(rule.size, 'sample')}"
    if isinstance(rule, Budget):
        quadratic = f" with quadratic term {_length(rule.quadratic, unit)}" if rule.quadratic else ""
        return f"micro-batches of up to {_length(rule.budget, unit)}, padding included{quadratic}"
    if isinstance(rule, Bucket):
        return f"{_count(len(rule.edges), 'bucket')} of {min(rule.sizes):,} to {max(rule.sizes):,} samples"
    return f"packs of {_length(rule.max_length, unit)}"


def _length(value: float, unit: Unit) -> str:
    return for_people(value, unit) if unit == "seconds" else f"{for_people(value, unit)} {unit}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
