"""One rank of the demo as a separate process: takes batches, records them, saves its state.

Started as `python -m playhead.cli.demo_rank JOB`, where JOB is a `RankJob` as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from playhead.cli.state_file import restore_from, save_to
from playhead.feed.batch import Batch
from playhead.feed.loader import Loader, WorkerKind
from playhead.recipe.values import Recipe


class RankJob(msgspec.Struct, frozen=True):
    """The job of a rank: from a state or the start, until a step or until it is killed."""

    recipe: str
    folder: str
    rank: int
    world_size: int
    workers: int
    worker_kind: WorkerKind
    state: str | None = None
    until: int | None = None
    parent: int = 0

    @property
    def log(self) -> Path:
        """One line for each batch delivered."""
        return Path(self.folder) / f"rank-{self.rank}.jsonl"

    @property
    def errors(self) -> Path:
        return Path(self.folder) / f"rank-{self.rank}.stderr"

    def state_after(self, num_steps: int) -> Path:
        return Path(self.folder) / f"rank-{self.rank}-after-{num_steps:06}.json"


def deliver(job: RankJob) -> None:
    recipe = Recipe.load(job.recipe)
    loader = Loader(recipe, rank=job.rank, world_size=job.world_size, workers=job.workers, worker_kind=job.worker_kind)
    with loader, job.log.open("w") as log:
        if job.state is not None:
            restore_from(Path(job.state), loader)
        for batch in loader:
            log.write(json.dumps(_delivered(batch)) + "\n")
            log.flush()
            if not batch.is_last_in_step:
                continue
            save_to(job.state_after(batch.step + 1), loader.state_dict())
            # An orphan exits by itself: no parent is left to kill it.
            if batch.step + 1 == job.until or os.getppid() != job.parent:
                return


def _delivered(batch: Batch) -> dict[str, Any]:
    return {"step": batch.step, "lane": batch.lane, "ids": batch["id"], "payload": payload_digest(batch)}


def payload_digest(batch: Batch) -> str:
    """A digest of every array and list in a batch: names, types, shapes and bytes."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(batch):
        value = batch[name]
        if isinstance(value, np.ndarray):
            found.update(f"{name} {value.dtype.str} {value.shape} ".encode())
            found.update(np.ascontiguousarray(value).data)
        else:
            found.update(json.dumps([name, value]).encode())
    return found.hexdigest()


if __name__ == "__main__":
    deliver(msgspec.json.decode(sys.argv[1], type=RankJob))
