"""Random streams: small sources, every kind of shuffle, batching, policy and fuse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from playhead.order.exhaustion import Mixture, blend_key, pieces_of
from playhead.order.shares import weighted
from playhead.order.source_order import SourceOrder
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule
from playhead.plan.segments import Segment, Stream
from playhead.seeds import key

LONGEST = 40
NO_PASSES: st.SearchStrategy[int | None] = st.none()
UP_TO_8 = st.integers(1, 8)


def rules() -> st.SearchStrategy[Rule]:
    edges = st.lists(st.integers(1, LONGEST - 1), min_size=0, max_size=4, unique=True)
    overlong = st.sampled_from(["alone", "truncate"])
    one_dimensional = st.builds(
        lambda cuts, sizes, late: BucketRule((*sorted(cuts), LONGEST), tuple(sizes[: len(cuts) + 1]), overlong=late),
        edges,
        st.lists(st.integers(1, 5), min_size=5, max_size=5),
        overlong,
    )
    two_dimensional = st.builds(
        lambda cuts, sizes, late: BucketRule(
            tuple(a for a in (*sorted(cuts), LONGEST) for _ in range(2)),
            tuple(sizes[: 2 * len(cuts) + 2]),
            (LONGEST // 3, LONGEST) * (len(cuts) + 1),
            overlong=late,
        ),
        edges,
        st.lists(st.integers(1, 5), min_size=10, max_size=10),
        overlong,
    )
    budget = st.builds(
        lambda budget, quadratic, late: BudgetRule(budget, LONGEST // 2, quadratic, late),
        st.integers(LONGEST // 2, 4 * LONGEST),
        st.sampled_from([0, 10, 100]),
        overlong,
    )
    pack = st.builds(PackRule, st.integers(LONGEST // 2, 3 * LONGEST), overlong)
    return st.one_of(st.builds(FixedRule, st.integers(1, 5)), budget, one_dimensional, two_dimensional, pack)


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


@st.composite
def orders(draw: st.DrawFn, name: str, shuffles: tuple[str, ...] = ("none", "global", "shards")) -> SourceOrder:
    shards = draw(st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any))
    shuffle = draw(st.sampled_from(shuffles))
    seed = draw(st.integers(0, 3))
    group = draw(st.integers(1, 4))
    return SourceOrder(sum(shards), shuffle, key(seed, "shuffle", name), np.array(shards), group)


@st.composite
def streams(
    draw: st.DrawFn,
    *,
    policies: tuple[str, ...] = ("repeat", "stop_first", "stop_all", "drop"),
    epochs: st.SearchStrategy[int | None] = NO_PASSES,
    shuffles: tuple[str, ...] = ("none", "global", "shards"),
    lanes: st.SearchStrategy[int] = UP_TO_8,
    rule: st.SearchStrategy[Rule] | None = None,
    max_sources: int = 4,
    name: str = "main",
) -> Stream:
    num_sources = draw(st.integers(1, max_sources))
    names = tuple(f"source{i}" for i in range(num_sources))
    walked = tuple(draw(orders(name, shuffles)) for name in names)
    chosen_rule = draw(rules() if rule is None else rule)
    chosen_lanes = draw(lanes)
    seed = draw(st.integers(0, 5))
    weights = tuple(Fraction(draw(st.integers(1, 9))) for _ in names)
    num_rows = np.array([order.num_rows for order in walked])
    mixture = Mixture(np.arange(num_sources), weights, num_rows, blend_key(seed, name, 0))
    policy, passes = draw(st.sampled_from(policies)), draw(epochs)
    pieces = pieces_of(mixture, policy, passes, 0, np.zeros(num_sources, np.int64))
    unit = chosen_lanes * (chosen_rule.size if isinstance(chosen_rule, FixedRule) else 1)
    window_size = unit * draw(st.integers(1, 12))
    balance = draw(st.sampled_from(divisors(chosen_lanes)))
    segment = Segment(0, 0, 0, pieces, window_size, chosen_lanes, balance, chosen_rule)
    noise = np.random.default_rng(draw(st.integers(0, 1000)))
    lengths = [noise.integers(0, LONGEST + 8, int(n)).astype(np.uint32) for n in num_rows]
    outputs = [noise.integers(0, LONGEST + 8, int(n)).astype(np.uint32) for n in num_rows]
    return Stream(name, seed, names, walked, _lookups(lengths), _lookups(outputs), (segment,), passes)


def _lookups(columns: list[np.ndarray]) -> tuple:
    return tuple(column.__getitem__ for column in columns)


def single(stream: Stream) -> Plan:
    return Plan((stream,), None, ())


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    kinds: tuple[str, ...] = ("one", "zip", "parts", "weight"),
    epochs: st.SearchStrategy[int | None] = NO_PASSES,
    **wanted: object,
) -> Plan:
    """One sub-stream, two zipped side by side or lane by lane, or two fused by weight."""
    kind = draw(st.sampled_from(kinds))
    passes = draw(epochs)
    first = draw(streams(epochs=st.just(passes), **wanted))  # type: ignore[arg-type]
    if kind == "one":
        return single(first)
    lanes = st.integers(1, 4) if kind == "zip" else st.just(first.segments[0].lanes)
    second = draw(streams(epochs=st.just(passes), name="second", **{**wanted, "lanes": lanes}))  # type: ignore[arg-type]
    second = replace(second, source_names=tuple(f"second-{name}" for name in second.source_names))
    if kind != "weight":
        return Plan((first, second), None, (), interleaved=kind == "parts")
    shares = [Fraction(draw(st.integers(1, 5))), Fraction(draw(st.integers(1, 5)))]
    return Plan((first, second), weighted(shares, key(7, "fuse")), ())
