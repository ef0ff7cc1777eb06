"""One dataset or blend -> its files. Large arrays are kept only as long as the next file needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError, PlayheadError, PrepareError
from playhead.formats.megatron_idx import Idx
from playhead.jobs import Call, Job, Local
from playhead.megatron.blending import exhaustive_rows, weighted_rows
from playhead.megatron.cache_plan import BlendEntry, DatasetEntry, Entry, text_of
from playhead.megatron.entry_files import (
    ArrayFile,
    Manifest,
    array_path,
    arrays_of,
    description_path,
    manifest_path,
)
from playhead.megatron.samples import sample_rows
from playhead.megatron.staging import Sink, staged
from playhead.megatron.twister import Twister
from playhead.types import Array

Phase = Callable[[str], None]


def build_dataset(cache: Path, entry: DatasetEntry, idx: Idx, manifest: Manifest, phase: Phase) -> None:
    """Build the files. Law: afterwards they are complete; after a failure none of them has changed."""
    documents, samples, shuffled = arrays_of(entry)
    twister = Twister(entry.seed)
    with _files(cache, entry, manifest) as create:
        phase("documents")
        order = document_order(entry, twister)
        create(documents).write(order.data)
        sample_file, shuffle_file = create(samples), create(shuffled)
        both = (  # both follow from the order of the documents, and are independent
            Call("samples", lambda: _write_samples(sample_file, entry, idx, order, samples)),
            Call("shuffle", lambda: shuffle_file.write(shuffle_order(entry, twister, shuffled).data)),
        )
        for call in both:
            phase(call.name)
        Local(len(both), threads=True).run(both, _raise)


def _raise(_: Job[Any], outcome: Any) -> None:
    if isinstance(outcome, PlayheadError):
        raise outcome


def _write_samples(file: Sink, entry: DatasetEntry, idx: Idx, order: Array, array: ArrayFile) -> None:
    lengths = idx.lengths(entry.first, entry.end)
    for rows in sample_rows(lengths, order, entry.first, entry.sequence_length, entry.num_samples, array.dtype):
        file.write(rows.data)


def document_order(entry: DatasetEntry, twister: Twister) -> Array:
    """The sequences of all epochs, shuffled together, or the last epoch apart."""
    count = entry.end - entry.first
    order = np.empty(entry.num_positions, np.int32)
    order.reshape(entry.num_epochs, count)[:] = np.arange(entry.first, entry.end, dtype=np.int32)
    apart = entry.num_positions - count if entry.separate_last else entry.num_positions
    twister.shuffle(order[:apart])
    twister.shuffle(order[apart:])
    return order


def shuffle_order(entry: DatasetEntry, twister: Twister, array: ArrayFile) -> Array:
    order = np.arange(array.shape[0], dtype=array.dtype)
    twister.shuffle(order[: entry.num_first])
    twister.shuffle(order[entry.num_first :])
    return order


def build_blend(cache: Path, entry: BlendEntry, manifest: Manifest, phase: Phase) -> None:
    """Law: as for a dataset. Needing more samples than a dataset has is an error before any file is in place."""
    datasets, samples = arrays_of(entry)
    drawn = np.zeros(len(entry.members), np.int64)
    phase("blend")
    if entry.size is None:
        rows = exhaustive_rows(np.array(entry.weights, np.int64), drawn)
    else:
        rows = weighted_rows(np.array(entry.weights, np.float64), entry.size, drawn)
    with _files(cache, entry, manifest) as create:
        dataset_file, sample_file = create(datasets), create(samples)
        for some_datasets, some_samples in rows:
            dataset_file.write(some_datasets.data)
            sample_file.write(some_samples.data)
        _check_drawn(entry, drawn)


def _check_drawn(entry: BlendEntry, drawn: Array) -> None:
    for member, count in zip(entry.members, drawn.tolist(), strict=True):
        if count > member.num_samples:
            raise DataError(
                f"{member.prefix}: the {entry.split} blend needs more samples than were built",
                found=f"{count:,} samples needed",
                expected=f"at most {member.num_samples:,}, which is what was built for it",
                fix="raise --mid-level-dataset-surplus, for example tenfold, here and in the training job",
            )


@contextmanager
def _files(cache: Path, entry: Entry, manifest: Manifest) -> Iterator[Callable[[ArrayFile], Sink]]:
    """Files to fill. All get their final names when the block ends, the description last; none if it fails.

    A kill in between leaves no description, and Megatron treats the entry as missing.
    """
    retired = (description_path(cache, entry), manifest_path(cache, entry))
    with explaining(cache), staged(cache, retired) as stage:

        def create(array: ArrayFile) -> Sink:
            file = stage(array_path(cache, entry, array))
            file.write(array.header)
            return file

        yield create
        stage(description_path(cache, entry)).write(text_of(entry.description).encode("utf-8"))
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        stage(manifest_path(cache, entry)).write(encoded + b"\n")


@contextmanager
def explaining(cache: Path) -> Iterator[None]:
    """Convert an error from writing to one with a fix for caches."""
    try:
        yield
    except PrepareError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        fix = f"free space in {cache}, make it writable, or use another --data-cache-path; finished files are kept"
        raise PrepareError(error.problem, found=error.found, fix=fix) from error
