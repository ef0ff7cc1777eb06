"""A lhotse user's dataset, what it delivers in a few letters, and one rank of a job that uses it, as a process.

Usage: lhotse_job.py RECIPE RANK WORLD_SIZE WORKERS OUT
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from lhotse import CutSet
from lhotse.dataset import AudioSamples, K2SpeechRecognitionDataset, PerturbVolume
from lhotse.dataset.cut_transforms import ExtraPadding

from playhead import Recipe
from playhead.lhotse import DataLoader


class Cuts:
    """The cuts themselves."""

    def __getitem__(self, cuts: CutSet) -> dict[str, Any]:
        assert isinstance(cuts, CutSet)
        return {"cuts": list(cuts)}


def recognition() -> K2SpeechRecognitionDataset:
    """Audio and texts, with random transforms: one has a generator of its own, the other uses Python's global one."""
    louder = PerturbVolume(p=0.5)
    padded = ExtraPadding(extra_samples=2_000, randomized=True, preserve_id=True)
    return K2SpeechRecognitionDataset(input_strategy=AudioSamples(), cut_transforms=[louder, padded])


def digest(batch: Any) -> str:
    """A batch of `recognition` in a few letters."""
    words, sizes = batch["supervisions"]["text"], batch["supervisions"]["num_samples"].tolist()
    content = batch["inputs"].numpy().tobytes() + json.dumps([words, sizes]).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def main() -> None:
    path, rank, world_size, workers, out = sys.argv[1:]
    loader = DataLoader(
        Recipe.load(path), recognition(), rank=int(rank), world_size=int(world_size), num_workers=int(workers)
    )
    with Path(out).open("w") as file:
        for batch in loader:
            file.write(f"{digest(batch)}\t{json.dumps(loader.state_dict())}\n")
            file.flush()


if __name__ == "__main__":
    main()
