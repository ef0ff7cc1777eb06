"""megatron-core itself, asked for what it would build and what it would read. Used in the tests only."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that the oracle would like to have
    from megatron.core.datasets import helpers
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    from megatron.core.tokenizers import MegatronTokenizer

from playhead.megatron.job import MegatronBlend, MegatronJob

__all__ = ["helpers"]

VOCAB = 500


@cache
def tokenizer() -> Any:
    return MegatronTokenizer.from_pretrained(metadata_path={"library": "null"}, vocab_size=VOCAB)


def tokenizer_key() -> dict[str, Any]:
    return dict(tokenizer().unique_identifiers)


def start() -> None:
    """A world of one: without it the oracle crashes on a cold blended cache."""
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


def stop() -> None:
    """Leave no process group behind: other tests of the same process ask who they are."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def write_dataset(prefix: Path, documents: Iterable[list[int]], dtype: type = np.uint16) -> str:
    """A dataset of one sequence a document, with lengths as given and tokens that tell where they are from."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for document in documents:
        builder.add_document(document, [len(document)])
    builder.finalize(f"{prefix}.idx")
    return str(prefix)


def documents_of(lengths: Iterable[int], seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, length).tolist() for length in lengths]


def build(job: MegatronJob, cache_path: Path, *, full_validation: bool = False, **options: Any) -> list[Any]:
    """What megatron-core builds, or reads, for the same job."""
    start()
    data: dict[str, Any]
    if job.blend is not None:
        data = {"blend": _pair(job.blend), "split": job.split}
    else:
        data = {"blend_per_split": [None if blend is None else _pair(blend) for blend in job.blends or ()]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = GPTDatasetConfig(
            random_seed=job.seed,
            sequence_length=job.sequence_length,
            path_to_cache=str(cache_path),
            tokenizer=tokenizer(),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            multiple_validation_sets=job.multiple_validation_sets,
            full_validation=full_validation,
            drop_last_partial_validation_sequence=not job.keep_partial_validation,
            mid_level_dataset_surplus=job.surplus,
            **data,
            **options,
        )
        return BlendedMegatronDatasetBuilder(GPTDataset, list(job.sizes), lambda: True, config).build()


def _pair(blend: MegatronBlend) -> tuple[list[str], list[float] | None]:
    return list(blend.prefixes), None if blend.weights is None else list(blend.weights)


def samples_of(dataset: Any) -> list[list[int]]:
    """The tokens of every sample, of all validation sets if there are several."""
    if dataset is None:
        return []
    if isinstance(dataset, list):
        return [sample for one in dataset for sample in samples_of(one)]
    return [dataset[i]["tokens"].tolist() for i in range(len(dataset))]
