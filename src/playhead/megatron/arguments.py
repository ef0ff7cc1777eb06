"""Flags -> the job: the location of its data, the number of samples, and the parts of its cache key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from playhead.errors import DataError, RecipeError
from playhead.megatron.counts import SampleCounts, count_samples
from playhead.megatron.flags import Flags, parse_flags
from playhead.megatron.job import DEFAULT_SURPLUS, MegatronBlend, MegatronBlends, MegatronJob, blend_of
from playhead.megatron.releases import release_of
from playhead.megatron.samples import LARGEST_INT32
from playhead.megatron.splits import SPLITS, split_matrix
from playhead.megatron.tokenizer import describe_tokenizer, read_tokenizer, vocab_size_of
from playhead.recipe.text import parse_yaml

_SPLIT = "969, 30, 1"
_LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class MegatronRequest:
    """A job with all values derived from its flags.

    `given_sequences` is whether it takes the counts of its datasets from a file. A `vocab_size` of None is unknown.
    """

    job: MegatronJob
    counts: SampleCounts
    cache: Path
    release: str
    fast_load: bool
    ignored: tuple[str, ...]
    given_sequences: bool = False
    vocab_size: int | None = None


def read_request(words: Sequence[str] = (), named: Mapping[str, Any] = MappingProxyType({})) -> MegatronRequest:
    """A job by its flags, as on a command line, and its arguments by name; a flag replaces the argument of its name.

    Arguments of Playhead itself: `megatron_release`, `like`, `keep_partial_validation_sequence`, `at_iteration`.
    """
    named = {str(name).replace("_", "-"): value for name, value in named.items()}
    release = named.pop("megatron-release", None)
    flags = parse_flags(words, release_of(None if release is None else str(release)), named)
    blend, blends = _data(flags)
    counts = count_samples(flags)
    like, surplus = flags.text("like"), flags.number("mid-level-dataset-surplus")
    job = MegatronJob(
        sequence_length=_sequence_length(flags),
        seed=_seed(flags),
        sizes=counts.samples,
        tokenizer=describe_tokenizer(flags) if like is None else read_tokenizer(like),
        blend=blend,
        split=None if blend is None else flags.text("split", _SPLIT),
        blends=blends,
        multiple_validation_sets=flags.has("multiple-validation-sets"),
        keep_partial_validation=flags.has("keep-partial-validation-sequence"),
        surplus=DEFAULT_SURPLUS if surplus is None else surplus,
    )
    if job.split is not None:
        split_matrix(job.split)
    return MegatronRequest(
        job=job,
        counts=counts,
        cache=_cache(flags),
        release=flags.release,
        fast_load=flags.has("dataloader-fast-cache-load"),
        given_sequences=flags.has("per-dataset-sequences-path"),
        vocab_size=vocab_size_of(flags) if like is None else flags.integer("vocab-size"),
        ignored=_ignored(flags),
    )


def _cache(flags: Flags) -> Path:
    cache = flags.text("data-cache-path")
    if not cache:
        raise RecipeError(
            "--data-cache-path: is missing" if cache is None else "--data-cache-path: is empty",
            expected="the directory in which the job looks for its cache",
        )
    return Path(cache)


def _sequence_length(flags: Flags) -> int:
    length = flags.at_least("seq-length", 1)
    if length is None:
        raise RecipeError("--seq-length: is missing", expected="the sequence length of the job")
    if length > LARGEST_INT32:
        raise RecipeError(f"--seq-length {length}", expected=f"at most {LARGEST_INT32:,}, the limit of Megatron")
    return length


def _seed(flags: Flags) -> int:
    seed = flags.at_least("seed", 0) or 0
    if seed > _LARGEST_SEED:
        raise RecipeError(f"--seed {seed}", expected=f"at most {_LARGEST_SEED}, the limit of numpy's generator")
    return seed


def _ignored(flags: Flags) -> tuple[str, ...]:
    """Flags for reading a cache do not matter for writing one."""
    reading = ("dataloader-fast-cache-load", "dataloader-defer-npy-index-mmap", "per-dataset-sequences-path")
    return (*flags.ignored, *(f"--{name}" for name in reading if flags.has(name)))


def _data(flags: Flags) -> tuple[MegatronBlend | None, MegatronBlends | None]:
    ways = {
        "--data-path": flags.has("data-path"),
        "--data-args-path": flags.has("data-args-path"),
        "--train-data-path, --valid-data-path, --test-data-path": any(flags.has(f"{s}-data-path") for s in SPLITS),
        "--per-split-data-args-path": flags.has("per-split-data-args-path"),
    }
    given = [way for way, used in ways.items() if used]
    if len(given) != 1:
        raise RecipeError(
            "no data option given" if not given else "more than one data option given",
            found=" and ".join(given) or None,
            expected="exactly one of " + "; ".join(ways),
        )
    if flags.has("data-path"):
        return blend_of(flags.many("data-path") or [], "--data-path"), None
    if flags.has("data-args-path"):
        path = flags.text("data-args-path") or ""
        if not flags.has("split"):
            raise RecipeError(
                "--data-args-path: without --split",
                expected=f'a split such as "{_SPLIT}"; Megatron has a default for it with --data-path only',
                fix="give --split, as the training job must",
            )
        return blend_of(_read(path).split(), path), None
    if flags.has("split"):
        raise RecipeError("--split: with data for each split", fix="leave --split out, as Megatron requires")
    if flags.has("per-split-data-args-path"):
        return None, _per_split(flags.text("per-split-data-args-path") or "")
    names = [f"{split}-data-path" for split in SPLITS]
    train, valid, test = (blend_of(flags.many(n) or [], f"--{n}") if flags.has(n) else None for n in names)
    return None, (train, valid, test)


def _per_split(path: str) -> MegatronBlends:
    try:
        found: Any = json.loads(_read(path))
        lists = [found[split] for split in SPLITS]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: is not a file of data arguments", expected='JSON with the keys "train", "valid" and "test"'
        ) from error
    words = [one.split() if isinstance(one, str) else one for one in lists]
    train, valid, test = (
        None if one is None else blend_of([str(word) for word in one], f'{path}, "{split}"')
        for split, one in zip(SPLITS, words, strict=True)
    )
    return train, valid, test


def read_named(path: str) -> dict[str, Any]:
    """A YAML file of a job's arguments by name, read by the rules of recipes."""
    found = parse_yaml(_read(path), path)
    if not isinstance(found, dict):
        raise RecipeError(f"{path}: is not a list of arguments by name", expected="lines such as `seq_length: 4096`")
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read", found=error.strerror, fix="correct the path") from error
