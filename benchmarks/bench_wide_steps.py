"""Planning for many lanes: CPU seconds a step and rank, and what whole steps cost, at 64 to 16,384 lanes.

A rank plans every window, lays its own lanes out, folds the receipt over all, and counts what was delivered.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from playhead.feed.progress import ProgressMaker
from playhead.feed.state import Position
from playhead.feed.totals import nothing_yet, running_totals
from playhead.plan.plan import Plan
from playhead.plan.rules import BudgetRule, FixedRule, PackRule, Rule
from streams import log_normal, make_stream

LENGTHS = {"log-normal": log_normal(4_000_000, 4096), "28 tokens": np.full(4_000_000, 28, np.uint32)}
RULES: dict[str, Rule] = {
    "fixed, 8 samples": FixedRule(8),
    "budget, 4,096": BudgetRule(4096, 4096),
    "pack, 4,096": PackRule(4096),
}
MOST_STEPS = 24


def measure(rule: Rule, lanes: int, lengths: np.ndarray, world_size: int) -> tuple[float, ...]:
    """Steps in a window, samples in a step, cost of whole steps, CPU seconds a step of planning and of laying out."""
    stream = make_stream(rule, lanes, [lengths], [1.0])
    plan = Plan((stream,), None, ())
    own = slice(0, None, world_size)
    progress_maker = ProgressMaker(plan)
    start = Position(plan.start(), 0, nothing_yet(plan))
    planning = []
    for number in (2, 1, 0):
        begin = time.process_time()
        window = plan.window(0, number)
        running_totals(plan, 0, window)
        planning.append((time.process_time() - begin) / window.num_steps)
    cost = len(window.groups) / window.num_formed - 1
    progress_maker.begin(plan.steps_at(start.cursor, own), start)  # the totals of the window are part of planning
    begin = time.process_time()
    num_steps = min(window.num_steps, MOST_STEPS)
    position = start
    while position.cursor.step < num_steps:
        steps = plan.steps_at(position.cursor, own, num_steps)
        for nth in range(len(steps)):
            list(steps.micro_batches(nth))
        position = progress_maker.begin(steps, position).position(len(steps), 0)
    laying = (time.process_time() - begin) / num_steps
    return window.num_steps, len(window.picks) / window.num_steps, cost, min(planning), laying


def main() -> None:
    table = Table("lengths", "rule", "lanes", "ranks", "steps", "samples a step", "whole steps cost", box=None)
    for name in ("planning, ms a step", "laying out, ms a step", "both, ms for 2^17 samples"):
        table.add_column(name)
    for name, lengths in LENGTHS.items():
        for rule_name, rule in RULES.items():
            for lanes in [int(word) for word in sys.argv[1:]] or (64, 1024, 16_384):
                for world in sorted({1, lanes}):
                    steps, samples, cost, planning, laying = measure(rule, lanes, lengths, world)
                    scaled = (planning + laying) * 1000 * (1 << 17) / samples
                    row = (name, rule_name, f"{lanes:,}", f"{world:,}", f"{steps}", f"{samples:,.0f}", f"{cost:.2%}")
                    table.add_row(*row, f"{planning * 1000:.2f}", f"{laying * 1000:.2f}", f"{scaled:.0f}")
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
