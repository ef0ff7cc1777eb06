"""What partial buckets and whole steps cost, and how evenly the sources are spread over the steps.

`spread` is the standard deviation between steps of a source's share of the samples, over what chance gives: the same
samples dealt to the same micro-batch sizes at random.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from playhead.inspect.summary import summarise
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, Rule
from playhead.plan.window import Window, plan_window
from playhead.resolve.batching import equal_length_edges
from streams import log_normal, make_stream, profile_of

WEIGHTS = [5.0, 3.0, 2.0]
# The sources differ in length as text, chat and speech transcripts do.
LENGTHS = [log_normal(300_000, 4096, mean, 1.0, seed) for seed, mean in enumerate((6.0, 5.5, 6.5))]
noise = np.random.default_rng(9)


def shares(window: Window, source: np.ndarray) -> np.ndarray:
    """The share of source 0 in each step."""
    starts = window.groups.starts[:: window.lanes]
    counts = np.add.reduceat((source == 0)[window.groups.members], starts[:-1].astype(np.int64))
    return counts / np.diff(starts)


def spread(window: Window) -> float:
    source = window.picks.source
    chance = np.mean([np.std(shares(window, noise.permutation(source))) for _ in range(5)])
    return float(np.std(shares(window, source)) / chance)


def main() -> None:
    inputs = profile_of(LENGTHS, WEIGHTS)
    edges = tuple(equal_length_edges(inputs, 30))
    rules: dict[str, Rule] = {
        "bucket, 30 x 32 samples": BucketRule(edges, (32,) * len(edges)),
        "bucket, 30 x 65,536 tokens": BucketRule(edges, tuple(65_536 // edge for edge in edges)),
        "budget, 32,768 tokens": BudgetRule(32_768, 32_768),
        "fixed, 32 samples": FixedRule(32),
    }
    table = Table(
        "rule", "lanes", "window", "partial buckets", "whole steps", "both", "slowest lane", "spread", box=None
    )
    for name, rule in rules.items():
        for lanes in (1, 8, 64):
            stream = make_stream(rule, lanes, LENGTHS, WEIGHTS)
            summary = summarise(Plan((stream,), None, ()), 0)
            partial = summary.partial_cost or 0.0
            both = (1 + partial) * (1 + summary.whole_step_cost) - 1
            spreads = [spread(plan_window(stream, number)) for number in range(4)]
            table.add_row(
                name,
                str(lanes),
                f"{stream.segments[0].window_size:,}",
                f"{partial:.2%}",
                f"{summary.whole_step_cost:.2%}",
                f"{both:.2%}",
                f"{summary.uneven_cost:.2%}",
                f"{np.mean(spreads):.2f}",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
