"""One rank of a job, as a process: delivers and writes down each batch with the state after it, until it is killed.

Usage: rank_process.py RECIPE RANK WORLD_SIZE WORKERS START_METHOD OUT
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from deliveries import Seen, saved, seen
from playhead import Loader, Recipe


def digest(batch: Seen) -> str:
    """What is delivered, in a few letters; which lane is a rank's last depends on the number of ranks."""
    return hashlib.blake2b(repr(batch._replace(is_last=False)).encode(), digest_size=8).hexdigest()


def main() -> None:
    path, rank, world_size, workers, method, out = sys.argv[1:]
    recipe = Recipe.load(path)
    how = {"workers": int(workers), "start_method": method}
    loader = Loader(recipe, rank=int(rank), world_size=int(world_size), **how)
    with Path(out).open("w") as file:
        for batch in loader:
            file.write(f"{digest(seen(batch))}\t{saved(loader)}\n")
            file.flush()


if __name__ == "__main__":
    main()
