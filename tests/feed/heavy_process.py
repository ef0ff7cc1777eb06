"""A loop over heavy batches, as a process: keeps some of them, checks that they stay as they were, until it is killed.

Usage: heavy_process.py RECIPE LOADER START_METHOD OUT; LOADER is numpy or torch. Writes the numbers of its workers'
processes, then a line a batch. With `FORKS=1` in the environment it leaves a fork of itself behind.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from playhead import Loader, Recipe, WorkerError


def loader_of(recipe: Recipe, kind: str, method: str) -> tuple[Any, Any]:
    """A loader and its pool of processes."""
    if kind == "numpy":
        loader: Any = Loader(recipe, workers=2, start_method=method)  # type: ignore[arg-type]
        return loader, loader._pool
    from playhead.torch import DataLoader

    loader = DataLoader(recipe, num_workers=2, multiprocessing_context=method)
    return loader, loader._pool._pool


def main() -> int:
    path, kind, method, out = sys.argv[1:]
    loader, pool = loader_of(Recipe.load(path), kind, method)
    kept: deque[tuple[bytes, Any]] = deque(maxlen=5)
    try:
        with Path(out).open("w") as file:
            for number, batch in enumerate(loader):
                if number == 0:
                    workers = [str(worker.process.pid) for worker in pool._workers]
                    if "FORKS" in os.environ and os.fork() == 0:
                        time.sleep(600)
                        os._exit(0)
                    file.write(" ".join(workers) + "\n")
                array = np.asarray(batch["npy"])
                kept.append((array.tobytes(), batch["npy"]))
                if any(np.asarray(array).tobytes() != before for before, array in kept):
                    return 4
                file.write(".\n")
                file.flush()
    except WorkerError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
