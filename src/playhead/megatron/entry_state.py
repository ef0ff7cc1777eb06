"""What a cache holds of a dataset or blend: nothing, damaged files, those of other data, or what the job needs.

A cache is recognised by its files, whoever made them. Our manifest is an extra: it tells whether the data changed.
Without one the shapes of the arrays are compared with the data, and the first samples with the lengths in its `.idx`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from playhead.megatron.effort import Entry
from playhead.megatron.files import (
    array_path,
    arrays_of,
    damaged_files,
    description_path,
    manifest_of,
    other_arrays,
    read_manifest,
)
from playhead.megatron.idx import Idx
from playhead.megatron.npy import read_part
from playhead.megatron.plan import Dataset
from playhead.megatron.samples import CHUNK_ROWS, sample_rows

UNTOLD = (
    "no manifest: Megatron made it, and whether the data changed since is known by its shape and first samples only"
)


def state_of(cache: Path, entry: Entry, indexes: dict[str, Idx]) -> tuple[str, tuple[str, ...]]:
    """ok, missing, broken or stale, and what there is to say about it."""
    damaged = damaged_files(cache, entry)
    if damaged:
        state = "broken" if description_path(cache, entry).is_file() else "missing"
        return state, tuple(f"missing or cut short: {name}" for name in damaged)
    others = other_arrays(cache, entry)
    manifest = read_manifest(cache, entry)
    if manifest is not None:
        expected = manifest_of(entry, indexes).indexes
        changed = [prefix for prefix, digest in expected.items() if manifest.indexes.get(prefix) != digest]
        if changed:
            return "stale", tuple(_changed(prefix) for prefix in changed)
        return ("broken", others) if others else ("ok", ())
    if others:
        return "stale", others
    if isinstance(entry, Dataset) and not _begins_as(cache, entry, indexes[entry.prefix]):
        return "stale", (_changed(entry.prefix),)
    return "ok", (UNTOLD,)


def _changed(prefix: str) -> str:
    return f"{prefix}.idx changed since; Megatron would use the cache all the same"


def _begins_as(cache: Path, entry: Dataset, idx: Idx) -> bool:
    """Whether the first samples begin where the lengths of the sequences put them."""
    documents, samples, _ = arrays_of(entry)
    count = min(entry.num_samples, CHUNK_ROWS - 1)
    rows: Any = read_part(array_path(cache, entry, samples.affix), samples.dtype, 2 * (count + 1)).reshape(-1, 2)
    last = int(rows[-1, 0])
    if not 0 <= last < entry.num_positions:
        return False
    order: Any = read_part(array_path(cache, entry, documents.affix), documents.dtype, last + 1)
    if order.min() < entry.first or order.max() >= entry.end:
        return False
    lengths = idx.lengths(entry.first, entry.end)
    expected = next(sample_rows(lengths, order, entry.first, entry.sequence_length, count, samples.dtype))
    return bool(np.array_equal(rows, expected))
