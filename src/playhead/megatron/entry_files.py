"""The files of one dataset or blend in a cache: their names, types, shapes and sizes; and in what state they are.

These are its arrays, `description.txt`, and `manifest.json`, which Playhead adds: the digests of the `.idx` files that
it was made from. Megatron reads the first two kinds and ignores the third. A cache is recognised by its files,
whichever program made them. Without a manifest the shapes of the arrays are compared with the data, and the first
samples with the lengths in its `.idx`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.lib import format as npy_format

from playhead.errors import DataError
from playhead.formats.megatron_idx import Idx
from playhead.index.arrays import npy_header
from playhead.megatron.cache_plan import BlendEntry, DatasetEntry, Entry, text_of
from playhead.megatron.samples import CHUNK_ROWS, sample_dtype, sample_rows
from playhead.types import Array

_LARGEST_UINT32 = 2**32 - 2
_MANIFEST_VERSION = 1
_NO_MANIFEST = (
    "no manifest: Megatron made it, and whether the data changed since is known by its shape and first samples only"
)


@dataclass(frozen=True)
class ArrayFile:
    """One `.npy` file of an entry."""

    affix: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def header(self) -> bytes:
        return npy_header(self.dtype, self.shape)

    @property
    def num_bytes(self) -> int:
        """The size of the file, its header included."""
        return len(self.header) + self.dtype.itemsize * prod(self.shape)


class Manifest(msgspec.Struct, frozen=True):
    """The inputs of an entry: `indexes` maps each prefix to the digest of its `.idx`."""

    version: int
    description: dict[str, Any]
    indexes: dict[str, str]


def arrays_of(entry: Entry) -> tuple[ArrayFile, ...]:
    if isinstance(entry, BlendEntry):
        return (
            ArrayFile("dataset_index", np.dtype(np.int16), (entry.num_samples,)),
            ArrayFile("dataset_sample_index", np.dtype(np.int64), (entry.num_samples,)),
        )
    shuffle_dtype = np.dtype(np.int64 if entry.num_samples >= _LARGEST_UINT32 else np.uint32)
    return (
        ArrayFile("document_index", np.dtype(np.int32), (entry.num_positions,)),
        ArrayFile("sample_index", sample_dtype(entry.num_positions), (entry.num_samples + 1, 2)),
        ArrayFile("shuffle_index", shuffle_dtype, (max(entry.num_first, entry.num_samples),)),
    )


def num_bytes_of(entry: Entry) -> int:
    return sum(array.num_bytes for array in arrays_of(entry)) + len(text_of(entry.description).encode())


def array_path(cache: Path, entry: Entry, array: ArrayFile) -> Path:
    return cache / f"{entry.name}-{array.affix}.npy"


def description_path(cache: Path, entry: Entry) -> Path:
    return cache / f"{entry.name}-description.txt"


def manifest_path(cache: Path, entry: Entry) -> Path:
    return cache / f"{entry.name}-manifest.json"


def manifest_of(entry: Entry, indexes: dict[str, Idx]) -> Manifest:
    members = entry.members if isinstance(entry, BlendEntry) else (entry,)
    return Manifest(_MANIFEST_VERSION, entry.description, {m.prefix: indexes[m.prefix].digest for m in members})


def state_of(cache: Path, entry: Entry, indexes: dict[str, Idx]) -> tuple[str, tuple[str, ...]]:
    """ok, missing, broken or stale, with details."""
    damaged = _damaged_files(cache, entry)
    if damaged:
        state = "broken" if description_path(cache, entry).is_file() else "missing"
        return state, tuple(f"missing or truncated: {name}" for name in damaged)
    others = _other_arrays(cache, entry)
    manifest = _read_manifest(manifest_path(cache, entry))
    if manifest is not None:
        expected = manifest_of(entry, indexes).indexes
        changed = [prefix for prefix, digest in expected.items() if manifest.indexes.get(prefix) != digest]
        if changed:
            return "stale", tuple(_changed(prefix) for prefix in changed)
        return ("broken", others) if others else ("ok", ())
    if others:
        return "stale", others
    if isinstance(entry, DatasetEntry) and not _begins_as(cache, entry, indexes[entry.prefix]):
        return "stale", (_changed(entry.prefix),)
    return "ok", (_NO_MANIFEST,)


def _changed(prefix: str) -> str:
    return f"{prefix}.idx changed since; Megatron would use the cache anyway"


def _damaged_files(cache: Path, entry: Entry) -> list[str]:
    """The files that Megatron needs and that are missing or truncated."""
    paths = [array_path(cache, entry, array) for array in arrays_of(entry)]
    found = [path.name for path in paths if _whole_array(path) is None]
    description = description_path(cache, entry)
    if not description.is_file() or description.read_bytes() != text_of(entry.description).encode():
        found.append(description.name)
    return found


def _other_arrays(cache: Path, entry: Entry) -> tuple[str, ...]:
    """How the complete arrays differ in shape or type from those of the current data."""
    found = []
    for array in arrays_of(entry):
        path = array_path(cache, entry, array)
        if _whole_array(path) != (array.shape, array.dtype):
            sizes = " x ".join(f"{length:,}" for length in array.shape)
            found.append(f"{path.name}: made from other data; the current data has {sizes} of {array.dtype}")
    return tuple(found)


def _whole_array(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """The shape and type of the array in a file; None if the file is missing or truncated."""
    try:
        with path.open("rb") as file:
            if npy_format.read_magic(file) != (1, 0):
                return None
            shape, in_columns, dtype = npy_format.read_array_header_1_0(file)
            whole = path.stat().st_size == file.tell() + dtype.itemsize * prod(shape)
    except (OSError, ValueError):
        return None
    return (shape, dtype) if whole and not in_columns else None


def _read_manifest(path: Path) -> Manifest | None:
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: is not a manifest", found=str(error), fix="remove it and prepare again") from error


def _begins_as(cache: Path, entry: DatasetEntry, idx: Idx) -> bool:
    """Whether the first samples begin at the positions computed from the lengths of the sequences."""
    documents, samples, _ = arrays_of(entry)
    count = min(entry.num_samples, CHUNK_ROWS - 1)
    rows = _first_numbers(cache, entry, samples, 2 * (count + 1)).reshape(-1, 2)
    last = int(rows[-1, 0])
    if not 0 <= last < entry.num_positions:
        return False
    order = _first_numbers(cache, entry, documents, last + 1)
    if order.min() < entry.first or order.max() >= entry.end:
        return False
    lengths = idx.lengths(entry.first, entry.end)
    expected = next(sample_rows(lengths, order, entry.first, entry.sequence_length, count, samples.dtype))
    return bool(np.array_equal(rows, expected))


def _first_numbers(cache: Path, entry: Entry, array: ArrayFile, count: int) -> Array:
    """The first rows of an array that is complete and as expected."""
    return np.fromfile(array_path(cache, entry, array), array.dtype, count, offset=len(array.header))
