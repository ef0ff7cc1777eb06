"""Training over a link that the system itself throttles, in a network namespace of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from rank_process import digest

from deliveries import seen
from loopback import serving
from playhead import Loader, Recipe
from playhead.prepare import prepare
from small_data import write_jsonl
from store_servers import free_port

NAMESPACE = ["unshare", "--net"]
TRIAL = "ip link set lo up && tc qdisc add dev lo root tbf rate 40mbit burst 128kb latency 2s"


def why_not() -> str | None:
    """Why no namespace with a throttled link can be made here."""
    if os.geteuid() != 0:
        return "only root may make a network namespace"
    try:
        tried = subprocess.run([*NAMESPACE, "sh", "-c", TRIAL], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return tried.stderr.strip() if tried.returncode else None


@pytest.mark.full
def test_a_run_over_a_throttled_link_is_the_run_over_local_files(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no throttled link can be made here: {reason}")
    noise = np.random.default_rng(0)
    for shard in range(8):
        rows = [{"id": f"{shard}-{i}", "tokens": noise.integers(0, 10_000, 500).tolist()} for i in range(200)]
        write_jsonl(tmp_path / f"part-{shard}.jsonl", rows)
    port = free_port()
    source = {"name": "web", "path": f"http://127.0.0.1:{port}/part-{{0..7}}.jsonl", "shuffle": "shards"}
    values = {"seed": 1, "lanes": 1, "epochs": 1, "batching": {"type": "fixed", "size": 16}}
    remote = {**values, "sources": [{**source, "shuffle_group": 2}]}
    cache = {"dir": "cache", "max_bytes": 1 << 30}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**remote, "shard_cache": cache}))
    with serving({f"/{path.name}": path.read_bytes() for path in tmp_path.glob("*.jsonl")}, port):
        recipe = Recipe.load(tmp_path / "recipe.yaml")
        prepare(recipe, workers=1)
        plain = Recipe.parse(remote, tmp_path)
        with Loader(plain, rank=0, world_size=1) as loader:
            expected = [digest(seen(batch)) for batch in loader]
            receipt = loader.state_dict()["receipt"]
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), str(here.parent), *filter(None, sys.path)])}
    command = [*NAMESPACE, sys.executable, str(here / "throttled_rank.py"), str(tmp_path), str(port)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["digests"] == expected
    assert found["receipt"] == receipt
    assert found["copied"] == 8
