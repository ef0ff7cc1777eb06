"""Planning speed on one core, at 64 lanes, beside the obvious Python of the same window."""

from __future__ import annotations

import random
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule
from playhead.plan.window import plan_window
from playhead.resolve.batching import equal_length_edges
from streams import log_normal, make_stream, profile_of

LANES = 64
WINDOWS = 8
LENGTHS = [log_normal(rows, 4096, seed=i) for i, rows in enumerate((8_000_000, 3_000_000, 400_000))]
WEIGHTS = [5.0, 3.0, 2.0]


def plain_python(rule: Rule, num_draws: int) -> float:
    """Draws a second of a loop that picks a source, a row, looks its length up and batches, with lists and dicts."""
    choose = random.Random(1)
    orders = [choose.sample(range(len(column)), min(len(column), num_draws)) for column in LENGTHS]
    columns = [column.tolist() for column in LENGTHS]
    begin = time.perf_counter()
    at = [0, 0, 0]
    batches: list[list[int]] = []
    batch: list[int] = []
    open_buckets: dict[int, list[int]] = {}
    used = 0
    for source in choose.choices(range(3), WEIGHTS, k=num_draws):
        row = orders[source][at[source] % len(orders[source])]
        at[source] += 1
        length = columns[source][row]
        if isinstance(rule, BucketRule):
            bucket = next(b for b, edge in enumerate(rule.edges) if length <= edge)
            members = open_buckets.setdefault(bucket, [])
            members.append(row)
            if len(members) == rule.sizes[bucket]:
                batches.append(open_buckets.pop(bucket))
        elif isinstance(rule, FixedRule):
            batch.append(row)
            if len(batch) == rule.size:
                batches.append(batch)
                batch = []
        else:
            limit = rule.budget if isinstance(rule, BudgetRule) else rule.max_length
            if used + length > limit:
                batches.append(batch)
                batch, used = [], 0
            batch.append(row)
            used += length
    return num_draws / (time.perf_counter() - begin)


def main() -> None:
    inputs = profile_of(LENGTHS, WEIGHTS)
    edges = tuple(equal_length_edges(inputs, 30))
    rules: dict[str, tuple[Rule, float]] = {
        "fixed, 32 samples": (FixedRule(32), 5e6),
        "budget, 32,768 tokens": (BudgetRule(32_768, 32_768), 0),
        "bucket, 30 buckets": (BucketRule(edges, tuple(65_536 // edge for edge in edges)), 2e6),
        "pack, 4,096 tokens": (PackRule(4096), 2e6),
        "pack, 32,768 tokens": (PackRule(32_768), 2e6),
        "pack, 600 s in ms": (PackRule(600_000), 2e6),
    }
    table = Table("rule", "window", "million draws/s", "target", "times a plain Python loop", box=None)
    for name, (rule, target) in rules.items():
        in_ms = isinstance(rule, PackRule) and rule.max_length > 100_000
        lengths = [column * 20 for column in LENGTHS] if in_ms else LENGTHS
        stream = make_stream(rule, LANES, lengths, WEIGHTS)
        size = stream.segments[0].window_size
        plan_window(stream, 0)
        begin = time.perf_counter()
        for number in range(1, WINDOWS + 1):
            plan_window(stream, number)
        rate = WINDOWS * size / (time.perf_counter() - begin)
        ratio = rate / plain_python(rule, 300_000)
        goal = f"{target / 1e6:.0f}" if target else ""
        table.add_row(name, f"{size:,}", f"{rate / 1e6:.1f}", goal, f"{ratio:.1f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
