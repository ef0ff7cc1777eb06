"""What the golden orders hold. `python tests/golden/freeze.py` writes them anew.

WARNING: a change here means that running jobs would continue with other data. Raise PLAN_VERSION in the same commit.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np

from playhead.order import blend as blending
from playhead.order.exhaustion import Mixture, blend_key, pieces_of
from playhead.order.permute import permute
from playhead.order.shares import passes, weighted
from playhead.order.source_order import SourceOrder, rows_between
from playhead.plan.plan import Plan
from playhead.plan.rules import BucketRule, BudgetRule, FixedRule, PackRule, Rule
from playhead.plan.segments import Segment, Stream
from playhead.resolve.fingerprints import PLAN_VERSION
from playhead.seeds import hash_text, key

FILE = Path(__file__).with_name("orders.json")

RULES: dict[str, Rule] = {
    "fixed": FixedRule(3),
    "budget": BudgetRule(900, 900, overlong="alone"),
    "budget, quadratic": BudgetRule(2000, 600, 500, "truncate"),
    "bucket": BucketRule((50, 200, 400), (8, 4, 2), overlong="alone"),
    "bucket, two dimensions": BucketRule((200, 200, 500, 500), (6, 4, 3, 2), (100, 500, 100, 500), overlong="truncate"),
    "pack": PackRule(1024),
}


def lengths(name: str, num_rows: int) -> np.ndarray:
    """Lengths from integer arithmetic alone, so that no random generator stands between platforms."""
    base = hash_text(name) % 1000
    return np.array([(base + row * row * 7919 + row * 104729) % 599 + 1 for row in range(num_rows)], np.uint32)


def stream(name: str, rule: Rule, lanes: int, policy: str, epochs: int | None) -> Stream:
    seed = 17
    names = (f"{name}-books", f"{name}-calls", f"{name}-web")
    shards = (np.array([30, 0, 31]), np.array([200]), np.array([40, 41, 42, 43]))
    shuffles = ("shards", "global", "none")
    orders = tuple(
        SourceOrder(int(rows.sum()), shuffle, key(seed, "shuffle", source), rows, 2)
        for source, rows, shuffle in zip(names, shards, shuffles, strict=True)
    )
    weights = (Fraction(1, 7), Fraction(2), Fraction("0.5"))
    rows = np.array([order.num_rows for order in orders])
    mixture = Mixture(np.arange(3), weights, rows, blend_key(seed, name, 0))
    pieces = pieces_of(mixture, policy, epochs, 0, np.zeros(3, np.int64))
    tables = [lengths(source, order.num_rows) for source, order in zip(names, orders, strict=True)]
    size = 12 * lanes * (rule.size if isinstance(rule, FixedRule) else 1)
    segment = Segment(0, 0, 0, pieces, size, lanes, lanes, rule)
    lookups = tuple(table.__getitem__ for table in tables)
    outputs = tuple(table[::-1].copy().__getitem__ for table in tables)
    return Stream(name, seed, names, orders, lookups, outputs, (segment,), epochs)


def described(plan: Plan, num_steps: int) -> dict:
    """The first steps in full, and the receipt far on."""
    steps = [step for (step, _), _ in zip(plan.steps(), range(num_steps), strict=False)]
    picks = [
        [np.stack((b.picks.source, b.picks.epoch, b.picks.row), 1).tolist() for b in step.micro_batches]
        for step in steps[:2]
    ]
    return {"first steps": picks, "steps": len(steps), "receipt": f"{steps[-1].receipt:016x}"}


def orders() -> dict:
    big = 10**12 + 39
    found: dict = {
        "plan version": PLAN_VERSION,
        "keys": [f"{key(*path):016x}" for path in [(), (0,), ("a",), (1, "shuffle", "calls", 3)]],
        "permute 10": permute(key(1, "p"), np.arange(10), 10).tolist(),
        "permute 65535": permute(key(1, "p"), np.arange(5), 65535).tolist(),
        "permute 65536": permute(key(1, "p"), np.arange(5), 65536).tolist(),
        "permute 10^12": permute(key(1, "p"), np.array([0, 1, 2, big - 1]), big).tolist(),
        "blend": blending.resolve(weighted([Fraction(1), Fraction(2), Fraction(1, 3)], 5), 5000, 5020)[0].tolist(),
        "passes with a tail": np.flatnonzero(
            blending.resolve(passes([2**21, 1, 1], 5)[0], 0, 2**21 + 2)[0] > 0
        ).tolist(),
    }
    for shuffle in ("none", "global", "shards"):
        order = SourceOrder(24, shuffle, key(1, "shuffle", "x"), np.array([5, 7, 0, 12]), 2)
        found[f"walk {shuffle}"] = rows_between(order, 20, 44)[1].tolist()
    for name, rule in RULES.items():
        found[f"plan {name}"] = described(Plan((stream("a", rule, 4, "repeat", None),), None, ()), 60)
    for policy in ("stop_first", "stop_all", "drop"):
        found[f"plan {policy}"] = described(Plan((stream("a", PackRule(1024), 4, policy, None),), None, ()), 1000)
    found["plan passes"] = described(Plan((stream("a", FixedRule(3), 4, "repeat", 2),), None, ()), 1000)
    pair = (stream("a", PackRule(1024), 2, "repeat", None), stream("b", FixedRule(2), 2, "repeat", None))
    found["plan zip"] = described(Plan(pair, None, ()), 60)
    found["plan by weight"] = described(Plan(pair, weighted([Fraction(3), Fraction(1)], key(17, "fuse")), ()), 60)
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    FILE.write_text(json.dumps(orders(), indent=1) + "\n", encoding="utf-8")
