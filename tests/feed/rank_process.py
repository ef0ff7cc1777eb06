"""One rank of a job, as a process: delivers and writes down each batch with the state after it, until it is killed.

Usage: rank_process.py RECIPE RANK WORLD_SIZE WORKERS START_METHOD OUT [OUT_OF_ANOTHER_RANK ...]

A rank goes on to its next batch when the other ranks that are named have delivered as many, as ranks do that train
together. Without names it runs alone.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from deliveries import Seen, saved, seen
from playhead import Loader, Recipe


def digest(batch: Seen) -> str:
    """What is delivered, in a few letters; which lane is a rank's last depends on the number of ranks."""
    return hashlib.blake2b(repr(batch._replace(is_last=False)).encode(), digest_size=8).hexdigest()


def main() -> None:
    path, rank, world_size, workers, method, out, *others = sys.argv[1:]
    recipe = Recipe.load(path)
    how = {"workers": int(workers), "start_method": method}
    loader = Loader(recipe, rank=int(rank), world_size=int(world_size), **how)
    with Path(out).open("w") as file:
        for number, batch in enumerate(loader, start=1):
            file.write(f"{digest(seen(batch))}\t{saved(loader)}\n")
            file.flush()
            while any(num_delivered(Path(other)) < number for other in others):
                time.sleep(0.002)


def num_delivered(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


if __name__ == "__main__":
    main()
