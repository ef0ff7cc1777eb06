"""A job and its indexes -> every dataset and blend of the cache, with its size and its name. Nothing is written.

Laws: the same datasets in the same order as megatron-core's builder makes them; none is listed twice. The text of each
description is the one that megatron-core writes into `description.txt`, to the byte: its MD5 is in the name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from playhead.errors import DataError, RecipeError
from playhead.formats.megatron_idx import Idx
from playhead.megatron.job import LARGEST_COUNT, MOST_PREFIXES, MegatronBlend, MegatronJob
from playhead.megatron.samples import num_samples_of
from playhead.megatron.splits import SPLITS, SplitBounds, SplitMatrix, normalise, sequences_of, split_matrix

_VALID = SPLITS.index("valid")
_SEPARATE_BELOW = 0.80
_WHOLE: SplitBounds = (0.0, 1.0)


@dataclass(frozen=True)
class DatasetEntry:
    """One prefix in one split: the sequences [first, end), read `num_epochs` times, split into `num_samples` samples.

    With `separate_last` the last epoch is shuffled separately; its samples begin at `num_first`.
    """

    prefix: str
    split: str
    first: int
    end: int
    num_epochs: int
    num_samples: int
    separate_last: bool
    num_first: int
    sequence_length: int
    seed: int
    description: dict[str, Any]

    @property
    def num_positions(self) -> int:
        return self.num_epochs * (self.end - self.first)

    @cached_property
    def name(self) -> str:
        return f"{_hash(self.description)}-GPTDataset-{self.split}"


@dataclass(frozen=True)
class BlendEntry:
    """Several datasets drawn by weight up to `size` or, if it is None, each exactly once."""

    split: str
    members: tuple[DatasetEntry, ...]
    weights: tuple[float, ...]
    size: int | None
    description: dict[str, Any]

    @property
    def num_samples(self) -> int:
        return int(sum(self.weights)) if self.size is None else self.size

    @cached_property
    def name(self) -> str:
        return f"{_hash(self.description)}-BlendedDataset-{self.split}"


Entry = DatasetEntry | BlendEntry


@dataclass(frozen=True)
class CachePlan:
    """The entries that a job looks for. `lengths` are those of the datasets used in training, by split."""

    datasets: tuple[DatasetEntry, ...]
    blends: tuple[BlendEntry, ...]
    lengths: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    @property
    def entries(self) -> list[Entry]:
        return [*self.datasets, *self.blends]


class _Draft:
    """A plan under construction: the datasets so far, by name."""

    def __init__(self, job: MegatronJob, matrix: SplitMatrix | None, indexes: Mapping[str, Idx]) -> None:
        self.job, self.matrix, self.indexes = job, matrix, indexes
        self.datasets: dict[str, DatasetEntry] = {}
        self.blends: dict[str, BlendEntry] = {}
        self.lengths: list[tuple[int, ...]] = [(), (), ()]

    def dataset(self, prefix: str, split: int, bounds: SplitBounds, size: int | None) -> DatasetEntry:
        found = _dataset_entry(self, prefix, split, bounds, size)
        return self.datasets.setdefault(found.name, found)

    def plain(self, prefix: str, split: int, bounds: SplitBounds) -> None:
        found = self.dataset(prefix, split, bounds, self.job.sizes[split])
        self.lengths[split] = (*self.lengths[split], found.num_samples)

    def blend(self, blend: MegatronBlend, split: int, bounds: SplitBounds) -> None:
        found = _blend_entry(self, blend, split, bounds)
        self.blends[found.name] = found
        self.lengths[split] = (found.num_samples,)

    def plan(self) -> CachePlan:
        train, valid, test = self.lengths
        return CachePlan(tuple(self.datasets.values()), tuple(self.blends.values()), (train, valid, test))


def plan_cache(job: MegatronJob, indexes: Mapping[str, Idx]) -> CachePlan:
    """One blend is split by the matrix; separate blends use all of their data for each split.

    A single prefix with a weight is a blend only with a matrix.
    """
    matrix = None if job.split is None else split_matrix(job.split)
    draft = _Draft(job, matrix, indexes)
    for split, blend in enumerate(job.blends or (job.blend,) * len(SPLITS)):
        if blend is None:
            continue
        _check_size(blend, job, split)
        bounds = _WHOLE if matrix is None else matrix[split]
        if bounds is None:
            continue
        is_plain = len(blend.prefixes) == 1 and (blend.weights is None or matrix is None)
        if is_plain or (job.multiple_validation_sets and matrix is None and split == _VALID):
            for prefix in blend.prefixes:
                draft.plain(prefix, split, bounds)
        else:
            draft.blend(blend, split, bounds)
    return draft.plan()


def _check_size(blend: MegatronBlend, job: MegatronJob, split: int) -> None:
    if job.sizes[split] is None and blend.weights is not None:
        raise RecipeError(
            f"{SPLITS[split]}: a weighted blend without a number of samples",
            found="weights, and one pass over the data (--full-validation)",
            expected="no weights with one pass, as Megatron does",
            fix="leave the weights out of the validation data, or leave --full-validation out",
        )
    if len(blend.prefixes) > MOST_PREFIXES:
        raise RecipeError(f"{SPLITS[split]}: {len(blend.prefixes):,} prefixes", expected=f"at most {MOST_PREFIXES:,}")


def _blend_entry(draft: _Draft, blend: MegatronBlend, split: int, bounds: SplitBounds) -> BlendEntry:
    job, size = draft.job, draft.job.sizes[split]
    weights: list[float] | list[int]
    if blend.weights is None:
        members = [draft.dataset(prefix, split, bounds, None) for prefix in blend.prefixes]
        weights = [member.num_samples for member in members]
        size = None if size is None else min(size, sum(weights))
    else:
        assert size is not None
        shares = normalise(list(blend.weights))
        wanted = [ceil(size * share) for share in shares]
        built = [_with_surplus(count, job.surplus) for count in wanted]
        members = [
            draft.dataset(prefix, split, bounds, count) for prefix, count in zip(blend.prefixes, built, strict=True)
        ]
        weights, size = shares, sum(wanted)
    for member, weight in zip(members, weights, strict=True):
        _check_weight(member, weight)
    if size is not None:
        weights = normalise(list(weights))  # normalized twice, as in Megatron: the last digits may change
    description = {
        "class": "BlendedDataset",
        "datasets": [member.description for member in members],
        "split": SPLITS[split],
        "weights": weights,
        "size": size,
    }
    return BlendEntry(SPLITS[split], tuple(members), tuple(weights), size, description)


def _with_surplus(count: int, surplus: float) -> int:
    found = count * (1 + surplus)
    if found > LARGEST_COUNT:
        raise RecipeError(
            f"--mid-level-dataset-surplus {surplus:g}: more samples than can be counted",
            found=f"{count:,} samples of a dataset, and the surplus",
            expected="a small fraction: 0.005 is the default",
        )
    return ceil(found)


def _check_weight(member: DatasetEntry, weight: float) -> None:
    if weight <= 0:
        raise DataError(
            f"{member.prefix}: has no {member.split} sample to blend",
            found=f"{member.num_samples} samples of {member.sequence_length:,} tokens in one pass",
            expected="at least one",
            fix="leave it out of the blend, or give weights, so that it is seen several times",
        )


def _dataset_entry(draft: _Draft, prefix: str, split: int, bounds: SplitBounds, size: int | None) -> DatasetEntry:
    job, idx, name = draft.job, draft.indexes[prefix], SPLITS[split]
    first, end = sequences_of(bounds, idx.num_sequences)
    tokens = idx.token_counts[first, end]
    if tokens == 0:
        raise DataError(
            f"{prefix}: no token for {name}",
            found=f"{end - first:,} of {idx.num_sequences:,} sequences, all empty" if end > first else "no sequence",
            expected="at least one token; Megatron would loop forever looking for one",
            fix=f"give {name} a larger share in --split (or none at all: 0), or more data",
        )
    epochs = 1 if size is None else max(1, -(-(size * job.sequence_length + 1) // tokens))
    keep_partial = job.keep_partial_validation and split == _VALID
    num_samples = num_samples_of(epochs * tokens, job.sequence_length, keep_partial=keep_partial)
    before = ((epochs - 1) * tokens - 1) // job.sequence_length
    per_epoch = (tokens - 1) // job.sequence_length
    separate = epochs > 1 and size is not None and size - before < int(_SEPARATE_BELOW * per_epoch)
    return DatasetEntry(
        prefix=prefix,
        split=name,
        first=first,
        end=end,
        num_epochs=epochs,
        num_samples=num_samples,
        separate_last=separate,
        num_first=before if separate else num_samples,
        sequence_length=job.sequence_length,
        seed=job.seed,
        description=_describe(job, draft.matrix, prefix, name, size),
    )


def _describe(
    job: MegatronJob, matrix: SplitMatrix | None, prefix: str, split: str, num_samples: int | None
) -> dict[str, Any]:
    """The description of one prefix in one split; the order of the keys is part of it."""
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


def text_of(description: dict[str, Any]) -> str:
    return json.dumps(description, indent=4)


def _hash(description: dict[str, Any]) -> str:
    return hashlib.md5(text_of(description).encode("utf-8"), usedforsecurity=False).hexdigest()
