"""A loop over heavy batches, as a process: keeps some of them, checks that they stay as they were, until it is killed.

Usage: heavy_process.py RECIPE START_METHOD OUT; writes the number of its workers' processes, then a line a batch.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

from playhead import Loader, Recipe, WorkerError


def main() -> int:
    path, method, out = sys.argv[1:]
    loader = Loader(Recipe.load(path), workers=2, start_method=method)
    kept: deque[tuple[bytes, object]] = deque(maxlen=5)
    try:
        with Path(out).open("w") as file:
            for number, batch in enumerate(loader):
                if number == 0:
                    file.write(" ".join(str(worker.process.pid) for worker in loader._pool._workers) + "\n")
                kept.append((batch["npy"].tobytes(), batch["npy"]))
                if any(array.tobytes() != before for before, array in kept):
                    return 4
                file.write(".\n")
                file.flush()
    except WorkerError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
