"""The plan's fingerprint: equal where plans are equal, whatever the place of the data; different where they differ."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpora import lengths_of, prepared, recipe_in, take, write_text
from playhead.plan.plan import Plan
from playhead.prepare import prepare
from small_data import write_jsonl

SHARDS = lengths_of(1, 3, 30)
BASE: dict[str, Any] = {"batching": {"type": "fixed", "size": 2}, "lanes": 4, "seed": 7, "window_size": 80}


def opened(folder: Path, source: dict[str, Any] | None = None, **fields: Any) -> Plan:
    a, b = write_text(folder, "a", SHARDS), write_text(folder, "b", [[5] * 20])
    return prepared(recipe_in(folder, {**a, "weight": 2, **(source or {})}, {**b, "weight": 1}, **{**BASE, **fields}))


def test_data_may_move(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    here = opened(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there", ignore=shutil.ignore_patterns(".playhead"))
    for path in (tmp_path / "there").iterdir():
        os.utime(path, ns=(10**18, 10**18))
    there = opened(tmp_path / "there", cache_dir="elsewhere")
    assert here.fingerprint == there.fingerprint
    assert [step.receipt for step in take(here, 30)] == [step.receipt for step in take(there, 30)]


def test_the_text_of_rows_the_workers_and_new_indexes_do_not_matter(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, write_text(tmp_path, "a", SHARDS), **BASE)
    first = prepared(recipe)
    shutil.rmtree(tmp_path / ".playhead")
    write_jsonl(tmp_path / "a-000.jsonl", [{"n": n, "text": "other text"} for n in SHARDS[0]])
    prepare(recipe, workers=3, processes=True)
    assert prepared(recipe).fingerprint == first.fingerprint


FROZEN: dict[str, dict[str, Any]] = {
    "3ac9ecf4ef153cd715dfea02b0434fa8": {"type": "fixed", "size": 2},
    "0076ba61be67e45e6cfb847622353b6d": {"type": "budget", "budget": 900},
    "cf651b7f60459a70a118e8a9315146af": {"type": "bucket", "edges": [100, 900], "size": 2},
    "5819321fb37abe63c2fe8d793ea1ee60": {"type": "pack", "max_length": 900},
}


@pytest.mark.parametrize(("fingerprint", "batching"), FROZEN.items(), ids=[each["type"] for each in FROZEN.values()])
def test_the_fingerprint_of_each_batching_is_frozen(tmp_path: Path, fingerprint: str, batching: dict[str, Any]) -> None:
    assert opened(tmp_path, batching=batching, weights_in="samples").fingerprint == fingerprint


def changed_length(folder: Path) -> Plan:
    """One length of one row, the number of rows and the sum of lengths as they were."""
    plan = opened(folder)
    swapped = [SHARDS[0][1], SHARDS[0][0], *SHARDS[0][2:]]
    assert swapped != SHARDS[0]
    recipe = recipe_in(
        folder,
        {"name": "a", "path": "a-*.jsonl", "length": "n", "weight": 2},
        {"name": "b", "path": "b-*.jsonl", "length": "n", "weight": 1},
        **BASE,
    )
    assert prepared(recipe).fingerprint == plan.fingerprint
    write_jsonl(folder / "a-000.jsonl", [{"n": n} for n in swapped])
    return prepared(recipe)


CHANGES: dict[str, Callable[[Path], Plan]] = {
    "seed": lambda folder: opened(folder, seed=8),
    "lanes": lambda folder: opened(folder, lanes=8),
    "weight": lambda folder: opened(folder, {"weight": 2.001}),
    "window size": lambda folder: opened(folder, window_size=88),
    "balance": lambda folder: opened(folder, balance=2),
    "batch size": lambda folder: opened(folder, batching={"type": "fixed", "size": 4}),
    "kind of batching": lambda folder: opened(folder, batching={"type": "bucket", "edges": [400], "size": 2}),
    "limit": lambda folder: opened(folder, batching={"type": "fixed", "size": 2, "max_length": 900}),
    "name": lambda folder: opened(folder, {"name": "aa"}),
    "shuffle": lambda folder: opened(folder, {"shuffle": "none"}),
    "selection": lambda folder: opened(folder, {"keep": {"lang": ["en"]}}),
    "exhaustion": lambda folder: opened(folder, exhaustion="stop_first"),
    "one length": changed_length,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_the_stream_is_in_it(tmp_path: Path, change: str) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before, after = opened(tmp_path / "before"), CHANGES[change](tmp_path / "after")
    assert before.fingerprint != after.fingerprint


def test_epochs_are_in_it(tmp_path: Path) -> None:
    source = write_text(tmp_path, "a", SHARDS)
    plans = [prepared(recipe_in(tmp_path, source, epochs=epochs)) for epochs in (None, 1, 2)]
    assert len({plan.fingerprint for plan in plans}) == 3


def by_pairs(folder: Path, outputs: list[int]) -> Plan:
    write_jsonl(folder / "p.jsonl", [{"n": 5, "m": m} for m in outputs])
    source = {"name": "p", "path": "p.jsonl", "length": "n", "output_length": "m"}
    batching = {"type": "bucket", "edges": [[5, 2], [5, 9]], "size": 2}
    return prepared(recipe_in(folder, source, batching=batching, lanes=2, window_size=16))


def test_output_lengths_are_in_it_for_they_choose_buckets(tmp_path: Path) -> None:
    one = by_pairs(tmp_path, [1, 1, 1, 9, 9, 9, 9, 9])
    one_receipts = [step.receipt for step in take(one, 20)]
    other = by_pairs(tmp_path, [9, 1, 1, 1, 9, 9, 9, 9])
    assert one_receipts != [step.receipt for step in take(other, 20)]
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(("shuffle", "equal"), [("global", True), ("none", True), ("shards", False)])
def test_the_cut_into_shards_counts_only_where_shards_are_shuffled(tmp_path: Path, shuffle: str, equal: bool) -> None:
    rows = [n for shard in SHARDS for n in shard]
    plans = []
    for name, cuts in (("one", [rows[:50], rows[50:]]), ("two", [rows[:20], rows[20:]])):
        (tmp_path / name).mkdir()
        source = {**write_text(tmp_path / name, "a", cuts), "shuffle": shuffle}
        plans.append(prepared(recipe_in(tmp_path / name, source)))
    assert (plans[0].fingerprint == plans[1].fingerprint) is equal
    receipts = [[step.receipt for step in take(plan, 20)] for plan in plans]
    assert (receipts[0] == receipts[1]) is equal


def test_fuse_weights_and_parts_are_in_it(tmp_path: Path) -> None:
    a, b = write_text(tmp_path, "a", SHARDS), write_text(tmp_path, "b", SHARDS)
    groups = [{"name": f"{s['name']}s", "batching": {"type": "fixed", "size": 2}, "sources": [s]} for s in (a, b)]
    fused = [prepared(recipe_in(tmp_path, *groups, lanes=2, fuse={"as": 1, "bs": w})) for w in (1, 2)]
    zipped = prepared(recipe_in(tmp_path, *({**group, "lanes": 1} for group in groups), lanes=2, fuse="zip"))
    parts = [prepared(recipe_in(tmp_path, a, lanes=6, parts=parts)) for parts in (1, 2, 3)]
    assert len({plan.fingerprint for plan in (*fused, zipped, *parts)}) == 6
