"""Delivery on the terminal: a live rate while it runs, a summary when it is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from playhead.cli.meter import Meter, Rates
from playhead.cli.screen import bar, console, count, grid, labelled, percent, print_json
from playhead.feed.batch import Batch
from playhead.feed.totals import Totals
from playhead.recipe.units import whole_unit
from playhead.recipe.values import Unit

UnitOf = dict[str, Unit]  # by source
MOST_SHOWN = 16
_REASONS = {
    "steps": "",
    "end": "; that was the last one",
    "finished": "; according to its state, the run was already finished",
    "SIGINT": "; stopped by Ctrl-C",
    "SIGTERM": "; stopped by SIGTERM",
}


@dataclass(frozen=True)
class RunSummary:
    """The result of a run, and why it stopped. Counts and rates are of this rank; totals are of all, from step 0."""

    reason: str
    rank: int
    world_size: int
    first_step: int
    meter: Meter
    state: dict[str, Any]
    totals: dict[str, Totals]
    unit_of: UnitOf
    state_file: Path | None
    exit_code: int = 0


def live_view(last: Batch | None, meter: Meter, totals: dict[str, Totals] | None, unit_of: UnitOf) -> Group:
    """The live view on a terminal; without the sources if their totals are not available."""
    if last is None:
        return Group(Text("waiting for the first batch"))
    line = Text.assemble((f"step {last.step:,}", "bold"), f"  {_rates_text(meter.recent())}")
    return Group(line) if totals is None else Group(line, _sources_grid(totals, unit_of, bars=True))


def print_summary(done: RunSummary, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(done))
        return
    screen = console()
    for label, text in _facts(done):
        labelled(screen, label, text)
    screen.print(_sources_grid(done.totals, done.unit_of))


def _facts(done: RunSummary) -> list[tuple[str, str]]:
    counts, state = done.meter.counts(), done.state
    counted = [count(counts.steps, "step"), f"{counts.batches:,} micro-batches", count(counts.samples, "sample")]
    facts = [("delivered", f"{', '.join(counted)} in {_seconds(done.meter)}{_REASONS[done.reason]}")]
    if done.world_size > 1:
        facts.append(("rank", f"{done.rank} of {done.world_size}; the table is of all ranks"))
    facts.append(("rate", _rates_text(done.meter.mean())))
    lanes = f", and {count(state['lanes_done'], 'lane')} of the next are done" if state["lanes_done"] else ""
    facts.append(("receipt", f"{state['receipt']} after {count(state['step'], 'step')}{lanes}"))
    if done.state_file is not None:
        facts.append(("state", str(done.state_file)))
    return facts


def _as_json(done: RunSummary) -> dict[str, Any]:
    counts, rates, first = done.meter.counts(), done.meter.mean(), done.meter.seconds_to_first
    return {
        "reason": done.reason,
        "rank": done.rank,
        "world_size": done.world_size,
        "first_step": done.first_step,
        "next_step": done.state["step"],
        "lanes_done": done.state["lanes_done"],
        "steps": counts.steps,
        "batches": counts.batches,
        "samples": counts.samples,
        "length": {whole_unit(unit): length for unit, length in counts.length.items()},
        "seconds": round(done.meter.seconds, 3),
        "seconds_to_first": None if first is None else round(first, 3),
        "rates": {
            "steps": round(rates.steps, 3),
            "samples": round(rates.samples, 3),
            "length": {whole_unit(unit): round(rate, 3) for unit, rate in rates.length.items()},
        },
        "totals": {
            name: {**asdict(total), **({"unit": whole_unit(done.unit_of[name])} if name in done.unit_of else {})}
            for name, total in done.totals.items()
        },
        "receipt": done.state["receipt"],
        "state": None if done.state_file is None else str(done.state_file),
    }


def _seconds(meter: Meter) -> str:
    first = meter.seconds_to_first
    return f"{meter.seconds:,.1f} s" + ("" if first is None else f", the first after {first:,.1f} s")


def _rates_text(rates: Rates) -> str:
    lengths = [
        f"{rate / 1000:,.1f} seconds/s" if unit == "seconds" else f"{rate:,.0f} {unit}/s"
        for unit, rate in rates.length.items()
        if rate
    ]
    return "  ".join([f"{rates.steps:,.1f} steps/s", f"{rates.samples:,.0f} samples/s", *lengths])


def _sources_grid(totals: dict[str, Totals], unit_of: UnitOf, *, bars: bool = False) -> Grid:
    """Deliveries by source since step 0, on all ranks: shares of samples of all, of length among like units."""
    table = grid("<source", ">samples", ">of the samples", ">of the length", ">padding", *(["<"] if bars else []))
    everything = totals["all"].samples
    length_in: dict[Unit, int] = {}
    for name, unit in unit_of.items():
        length_in[unit] = length_in.get(unit, 0) + totals[name].length
    names = sorted(unit_of, key=lambda name: -totals[name].samples) if len(unit_of) > MOST_SHOWN else list(unit_of)
    for name in names[:MOST_SHOWN]:
        total = totals[name]
        share = total.samples / everything if everything else 0.0
        cells = [name, f"{total.samples:,}", percent(share), _fraction(total.length, length_in[unit_of[name]])]
        cells.append("-" if total.padding is None else _fraction(total.padding, total.length + total.padding))
        table.add_row(*cells, *([bar(share, 20)] if bars else []))
    if len(names) > MOST_SHOWN:
        rest = sum(totals[name].samples for name in names[MOST_SHOWN:])
        table.add_row(
            f"{len(names) - MOST_SHOWN:,} more", f"{rest:,}", percent(rest / everything if everything else 0.0)
        )
    return table


def _fraction(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "-"
