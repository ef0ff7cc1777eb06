"""A job and its indexes -> every dataset and blend of the cache, with its size and its name. Nothing is written.

Laws: the same datasets in the same order as megatron-core's builder makes them; none is listed twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from playhead.errors import DataError, RecipeError
from playhead.megatron.describe import describe_blend, describe_dataset, hash_of, text_of
from playhead.megatron.job import LARGEST_COUNT, MOST_PREFIXES, Blend, Job
from playhead.megatron.samples import num_samples_of
from playhead.megatron.splits import SPLITS, Bounds, Matrix, normalise, sequences_of, split_matrix
from playhead.megatron.survey import Survey

_VALID = SPLITS.index("valid")
_SEPARATE_BELOW = 0.80
_WHOLE: Bounds = (0.0, 1.0)


@dataclass(frozen=True)
class Dataset:
    """One prefix in one split: the sequences [first, end), seen `num_epochs` times, cut into `num_samples` samples.

    With `separate_last` the last epoch is shuffled apart, its samples being those from `num_first` on.
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
        return f"{hash_of(text_of(self.description))}-GPTDataset-{self.split}"


@dataclass(frozen=True)
class Mixture:
    """Several datasets drawn by weight up to `size`, or, where it is None, each exactly once through."""

    split: str
    members: tuple[Dataset, ...]
    weights: tuple[float, ...]
    size: int | None
    description: dict[str, Any]

    @property
    def num_samples(self) -> int:
        return int(sum(self.weights)) if self.size is None else self.size

    @cached_property
    def name(self) -> str:
        return f"{hash_of(text_of(self.description))}-BlendedDataset-{self.split}"


@dataclass(frozen=True)
class Plan:
    """What a job looks for. `lengths` are those of the datasets that training is given, by split."""

    datasets: tuple[Dataset, ...]
    mixtures: tuple[Mixture, ...]
    lengths: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class _Draft:
    """A plan in the making: the datasets so far, by name."""

    def __init__(self, job: Job, matrix: Matrix | None, surveys: Mapping[str, Survey]) -> None:
        self.job, self.matrix, self.surveys = job, matrix, surveys
        self.datasets: dict[str, Dataset] = {}
        self.mixtures: dict[str, Mixture] = {}
        self.lengths: list[tuple[int, ...]] = [(), (), ()]

    def dataset(self, prefix: str, split: int, bounds: Bounds, size: int | None) -> Dataset:
        found = _dataset(self.job, self.matrix, self.surveys[prefix], split, bounds, size)
        return self.datasets.setdefault(found.name, found)

    def plain(self, prefix: str, split: int, bounds: Bounds) -> None:
        found = self.dataset(prefix, split, bounds, self.job.sizes[split])
        self.lengths[split] = (*self.lengths[split], found.num_samples)

    def mixture(self, blend: Blend, split: int, bounds: Bounds) -> None:
        found = _mixture(self, blend, split, bounds)
        self.mixtures[found.name] = found
        self.lengths[split] = (found.num_samples,)

    def plan(self) -> Plan:
        train, valid, test = self.lengths
        return Plan(tuple(self.datasets.values()), tuple(self.mixtures.values()), (train, valid, test))


def plan_job(job: Job, surveys: Mapping[str, Survey]) -> Plan:
    if job.blend is not None:
        assert job.split is not None
        return _plan_blend(job, job.blend, split_matrix(job.split), surveys)
    draft = _Draft(job, None, surveys)
    for split, blend in enumerate(job.blends or ()):
        if blend is None:
            continue
        _check_size(blend, job, split)
        if len(blend.prefixes) == 1 or (job.multiple_validation_sets and split == _VALID):
            for prefix in blend.prefixes:
                draft.plain(prefix, split, _WHOLE)
        else:
            draft.mixture(blend, split, _WHOLE)
    return draft.plan()


def _plan_blend(job: Job, blend: Blend, matrix: Matrix, surveys: Mapping[str, Survey]) -> Plan:
    draft = _Draft(job, matrix, surveys)
    for split, bounds in enumerate(matrix):
        _check_size(blend, job, split)
        if bounds is None:
            continue
        if len(blend.prefixes) == 1 and blend.weights is None:
            draft.plain(blend.prefixes[0], split, bounds)
        else:
            draft.mixture(blend, split, bounds)
    return draft.plan()


def _check_size(blend: Blend, job: Job, split: int) -> None:
    if job.sizes[split] is None and blend.weights is not None:
        raise RecipeError(
            f"{SPLITS[split]}: a weighted blend without a number of samples",
            found="weights, and one pass over the data (--full-validation)",
            expected="no weights with one pass, as Megatron does",
            fix="leave the weights out of the validation data, or leave --full-validation out",
        )
    if len(blend.prefixes) > MOST_PREFIXES:
        raise RecipeError(f"{SPLITS[split]}: {len(blend.prefixes):,} prefixes", expected=f"at most {MOST_PREFIXES:,}")


def _mixture(draft: _Draft, blend: Blend, split: int, bounds: Bounds) -> Mixture:
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
        weights = normalise(list(weights))  # once more: the last digits may move, and Megatron does
    description = describe_blend([member.description for member in members], SPLITS[split], weights, size)
    return Mixture(SPLITS[split], tuple(members), tuple(weights), size, description)


def _with_surplus(count: int, surplus: float) -> int:
    found = count * (1 + surplus)
    if found > LARGEST_COUNT:
        raise RecipeError(
            f"--mid-level-dataset-surplus {surplus:g}: gives more samples than can be counted",
            found=f"{count:,} samples of a dataset, and the surplus",
            expected="a small fraction: 0.005 is the default",
        )
    return ceil(found)


def _check_weight(member: Dataset, weight: float) -> None:
    if weight <= 0:
        raise DataError(
            f"{member.prefix}: has no {member.split} sample to blend",
            found=f"{member.num_samples} samples of {member.sequence_length:,} tokens in one pass",
            expected="at least one",
            fix="leave it out of the blend, or give weights, so that it is seen several times",
        )


def _dataset(job: Job, matrix: Matrix | None, survey: Survey, split: int, bounds: Bounds, size: int | None) -> Dataset:
    name, prefix = SPLITS[split], survey.idx.prefix
    first, end = sequences_of(bounds, survey.idx.num_sequences)
    tokens = survey.tokens(first, end)
    if tokens == 0:
        raise DataError(
            f"{prefix}: no token for {name}",
            found=f"{end - first:,} of {survey.idx.num_sequences:,} sequences, all empty"
            if end > first
            else "no sequence",
            expected="at least one token; Megatron would go round for ever looking for one",
            fix=f"give {name} a larger share in --split (or none at all: 0), or more data",
        )
    epochs = 1 if size is None else max(1, -(-(size * job.sequence_length + 1) // tokens))
    keep_partial = job.keep_partial_validation and split == _VALID
    num_samples = num_samples_of(epochs * tokens, job.sequence_length, keep_partial=keep_partial)
    before = ((epochs - 1) * tokens - 1) // job.sequence_length
    per_epoch = (tokens - 1) // job.sequence_length
    separate = epochs > 1 and size is not None and size - before < int(_SEPARATE_BELOW * per_epoch)
    return Dataset(
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
        description=describe_dataset(job, matrix, prefix, name, size),
    )
