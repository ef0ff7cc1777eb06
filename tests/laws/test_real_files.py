"""The laws of the stream over real files: JSONL and tars, several shards, indexed for real, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import lengths_of, named_rows, once_each, plan_in, take, write_speech, write_text
from small_data import write_jsonl

# One rank of a job: it prepares nothing, plans everything, and prints what it is dealt.
RANK = """
import json, sys
from itertools import islice
from playhead import Recipe, open_plan
from playhead.deal import lanes_of_rank
from playhead.prepare import prepare

path, world_size, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
recipe = Recipe.load(path)
prepare(recipe, workers=workers, processes=workers > 1)
plan = open_plan(recipe, world_size=world_size)
ranks = [lanes_of_rank(rank, world_size, plan.lanes) for rank in range(world_size)]
dealt = [[] for _ in ranks]
for step, _ in islice(plan.steps(), 40):
    for rank, lanes in enumerate(ranks):
        for lane in lanes:
            batch = step.micro_batches[lane]
            picks = zip(batch.picks.source.tolist(), batch.picks.epoch.tolist(), batch.picks.row.tolist())
            dealt[rank].append([step.number, lane, batch.stream, batch.idle, list(picks)])
json.dump({"fingerprint": plan.fingerprint, "receipt": step.receipt, "dealt": dealt}, sys.stdout)
"""

BATCHINGS: dict[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "size": 3},
    "budget": {"type": "budget", "budget": 4},
    "quadratic": {"type": "budget", "budget": 9, "quadratic": 2},
    "bucket": {"type": "bucket", "num": 4, "budget": 6},
    "pairs": {"type": "bucket", "num": [3, 2], "size": 4},
    "pack": {"type": "pack", "max_length": 4},
}


def corpus(folder: Path) -> list[dict[str, Any]]:
    """Two sources in seconds: tars (3 shards, one of them of one row), and JSONL of which some rows are left out."""
    noise = np.random.default_rng(3)
    durations = [noise.uniform(0.2, 3, count).round(3).tolist() for count in (31, 1, 24)]
    calls = {**write_speech(folder, "calls", durations), "shuffle": "shards", "shuffle_group": 2}
    for shard in range(4):
        rows = [{"d": round(float(d), 3), "lang": "en" if d < 2 else "xx"} for d in noise.uniform(0.2, 3, 20 + shard)]
        write_jsonl(folder / f"talks-{shard}.jsonl", rows)
    talks = {"name": "talks", "path": "talks-*.jsonl", "length": {"field": "d", "unit": "seconds"}}
    talks = {**talks, "keep": {"lang": ["en"]}}
    return [
        {**source, "output_length": source["length"]}  # outputs like inputs: enough for buckets of both
        for source in (calls, talks)
    ]


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("kind", BATCHINGS)
def test_one_pass_plans_every_selected_row_exactly_once(tmp_path: Path, kind: str, lanes: int) -> None:
    plan = plan_in(tmp_path, *corpus(tmp_path), batching=BATCHINGS[kind], lanes=lanes, epochs=1)
    calls, talks = plan.streams[0].orders
    assert calls.num_rows == 56
    assert 30 < talks.num_rows < 86
    assert Counter(named_rows(plan, take(plan))) == once_each(calls=56, talks=talks.num_rows)


@pytest.mark.parametrize("lanes", [1, 4])
def test_fixed_batches_of_one_unshuffled_source_are_file_order(tmp_path: Path, lanes: int) -> None:
    source = {**write_text(tmp_path, "a", lengths_of(1, 3, 20)), "shuffle": "none"}
    plan = plan_in(tmp_path, source, lanes=lanes)
    rows = named_rows(plan, take(plan, 500))
    assert rows == [("a", draw // 69, draw % 69) for draw in range(len(rows))]
    (lengths,) = plan.streams[0].lengths_of
    assert lengths(np.arange(69)).tolist() == [n for shard in lengths_of(1, 3, 20) for n in shard]


def rank_process(recipe: Path, world_size: int, workers: int, hash_seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RANK, str(recipe), str(world_size), str(workers)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_every_world_size_is_dealt_the_same_stream_in_its_own_process(tmp_path: Path) -> None:
    calls, talks = corpus(tmp_path)
    text = write_text(tmp_path, "books", lengths_of(4, 3, 40))
    recipe = {
        "lanes": 6,
        "seed": 5,
        "fuse": {"speech": 2, "text": 1},
        "sources": [
            {"name": "speech", "batching": BATCHINGS["bucket"], "sources": [calls, talks], "temperature": 0.5},
            {"name": "text", "batching": {"type": "pack", "max_length": 500}, "sources": [text]},
        ],
    }
    processes = []
    for number, (world_size, workers) in enumerate([(1, 1), (2, 3), (3, 1), (6, 1)]):
        # Each has its own indexes; one has them made by several workers.
        path = tmp_path / f"recipe-{number}.json"
        path.write_text(json.dumps({**recipe, "cache_dir": f"cache-{number}"}))
        processes.append(rank_process(path, world_size, workers, hash_seed=number))
    outcomes = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    for outcome, world_size in zip(outcomes, (1, 2, 3, 6), strict=True):
        assert {len(batches) for batches in outcome["dealt"]} == {40 * 6 // world_size}
    streams = [sorted(batch for batches in outcome.pop("dealt") for batch in batches) for outcome in outcomes]
    assert all(stream == streams[0] for stream in streams)
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert [batch[:2] for batch in streams[0]] == [[step, lane] for step in range(40) for lane in range(6)]
