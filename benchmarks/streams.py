"""Streams for the benchmarks: synthetic lengths in plain arrays, rules and windows as the planner would choose them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from playhead.index.histogram import Tally
from playhead.order.exhaustion import Mixture, blend_key, pieces_of
from playhead.order.source_order import SourceOrder
from playhead.plan.rules import Rule
from playhead.plan.segments import Segment, Stream
from playhead.resolve.batching import Profile, default_balance, profile
from playhead.resolve.window_size import Drawn, default_window_size
from playhead.seeds import key

SEED = 1


def log_normal(num_rows: int, longest: int, mean: float = 6.0, spread: float = 1.0, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed)
    return np.clip(noise.lognormal(mean, spread, num_rows), 1, longest).astype(np.uint32)


def profile_of(lengths: list[np.ndarray], weights: list[float]) -> Profile:
    tallies = []
    for column in lengths:
        tally = Tally()
        tally.add(column)
        tallies.append(tally.histogram())
    total = sum(weights)
    return profile(tallies, [weight / total for weight in weights], max(int(column.max()) for column in lengths))


def make_stream(rule: Rule, lanes: int, lengths: list[np.ndarray], weights: list[float]) -> Stream:
    """An endless, globally shuffled blend with the default window and balance."""
    names = tuple(f"source{i}" for i in range(len(lengths)))
    orders = tuple(
        SourceOrder(len(column), "global", key(SEED, "shuffle", name))
        for name, column in zip(names, lengths, strict=True)
    )
    mixture = Mixture(
        np.arange(len(names)),
        tuple(Fraction(weight) for weight in weights),
        np.array([order.num_rows for order in orders]),
        blend_key(SEED, "main", 0),
    )
    pieces = pieces_of(mixture, "repeat", None, 0, np.zeros(len(names), np.int64))
    size = default_window_size(rule, lanes, Drawn(profile_of(lengths, weights), None))
    segment = Segment(0, 0, 0, pieces, size, lanes, default_balance(lanes), rule)
    lookups = tuple(column.__getitem__ for column in lengths)
    return Stream("main", SEED, names, orders, lookups, (None,) * len(names), (segment,))
