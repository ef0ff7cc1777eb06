"""A rank whose storage is behind a throttled link: the loopback of a network namespace of its own, at 40 Mbit/s.

Arguments: a folder with shards and a prepared recipe over http://127.0.0.1:PORT/, and the port. Prints a digest of
every batch, the receipt, and how many units the shard cache copied.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rank_process import digest

from deliveries import seen
from loopback import serving
from playhead import Loader, Recipe
from playhead.store.shard_cache.counters import sum_counters
from playhead.store.shard_cache.directory import CacheDirectory

LINK = ("ip link set lo up", "tc qdisc add dev lo root tbf rate 40mbit burst 128kb latency 2s")


def main(folder: Path, port: int) -> None:
    for command in LINK:
        subprocess.run(command.split(), check=True)
    objects = {f"/{path.name}": path.read_bytes() for path in folder.glob("*.jsonl")}
    recipe = Recipe.load(folder / "recipe.yaml")
    with serving(objects, port), Loader(recipe, rank=0, world_size=1, workers=2) as loader:
        digests = [digest(seen(batch)) for batch in loader]
        receipt = loader.state_dict()["receipt"]
    counts = sum_counters(CacheDirectory(folder / "cache"))
    print(json.dumps({"digests": digests, "receipt": receipt, "copied": counts.copied_units}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
