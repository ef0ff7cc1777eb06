"""The descriptions that name a cache: JSON texts, and their MD5.

Law: each is the text that megatron-core writes into `description.txt`, to the byte.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from playhead.megatron.job import Job
from playhead.megatron.splits import Matrix


def describe_dataset(
    job: Job, matrix: Matrix | None, prefix: str, split: str, num_samples: int | None
) -> dict[str, Any]:
    """What identifies one prefix in one split; the order of the keys is part of it."""
    return {
        "class": "GPTDataset",
        "dataset_path": prefix,
        "num_samples": num_samples,
        "index_split": split,
        "random_seed": job.seed,
        "sequence_length": job.sequence_length,
        "split": job.split,
        "split_matrix": None if matrix is None else [None if bounds is None else list(bounds) for bounds in matrix],
        "tokenizer": job.tokenizer,
    }


def describe_blend(
    datasets: list[dict[str, Any]], split: str, weights: list[float] | list[int], size: int | None
) -> dict[str, Any]:
    return {"class": "BlendedDataset", "datasets": datasets, "split": split, "weights": weights, "size": size}


def text_of(description: dict[str, Any]) -> str:
    return json.dumps(description, indent=4)


def hash_of(text: str) -> str:
    return hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()
