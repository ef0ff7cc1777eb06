"""How full packs are, and how mixed: the plan's best fit in draw order beside best-fit-decreasing.

Lengths log-normal(6, 1) clipped to the bin, 64 lanes, default window, whole steps included, 30 windows.
`alike` is the variance between packs of their mean log length, over what chance gives packs of the same sizes.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from playhead.plan.groups import Groups, grouped
from playhead.plan.pack import pack
from playhead.plan.rules import PackRule
from playhead.plan.window import plan_window
from streams import log_normal, make_stream

WINDOWS = 30
LANES = 64
noise = np.random.default_rng(5)


def between(groups: Groups, values: np.ndarray) -> float:
    """The variance between groups of the mean value, every sample counting once."""
    sizes = groups.sizes()
    means = np.add.reduceat(values[groups.members], groups.starts[:-1]) / sizes
    return float((sizes * (means - values.mean()) ** 2).sum() / sizes.sum())


def alike(groups: Groups, logs: np.ndarray) -> float:
    chance = np.mean([between(groups, noise.permutation(logs)) for _ in range(3)])
    return between(groups, logs) / float(chance)


def decreasing(lengths: np.ndarray, max_length: int) -> Groups:
    order = np.argsort(-lengths, kind="stable")
    bins, num_bins = pack(lengths[order], max_length)
    placed = np.empty_like(bins)
    placed[order] = bins
    return grouped(placed, num_bins)


def main() -> None:
    table = Table(
        "bin", "packer", "fill, mean", "fill, lowest", "fill before whole steps", "alike, times chance", box=None
    )
    for max_length in (4096, 32768):
        stream = make_stream(PackRule(max_length), LANES, [log_normal(3_000_000, max_length)], [1.0])
        ours, before, theirs, ours_alike, theirs_alike = [], [], [], [], []
        for number in range(WINDOWS):
            window = plan_window(stream, number)
            total = float(window.lengths.sum())
            ours.append(total / (len(window.groups) * max_length))
            before.append(total / (window.num_formed * max_length))
            other = decreasing(window.lengths, max_length)
            theirs.append(total / (-(-len(other) // LANES) * LANES * max_length))
            if number < 5:
                logs = np.log(window.lengths)
                ours_alike.append(alike(window.groups, logs))
                theirs_alike.append(alike(other, logs))
        for name, fills, raw, ratios in (
            ("playhead", ours, f"{np.mean(before):.4%}", ours_alike),
            ("best-fit-decreasing", theirs, "", theirs_alike),
        ):
            figures = (f"{np.mean(fills):.3%}", f"{np.min(fills):.3%}", raw, f"{np.mean(ratios):.2f}")
            table.add_row(f"{max_length:,}", name, *figures)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
