"""The files of one dataset or blend in a cache: their names, types, shapes and sizes.

These are its arrays, `description.txt`, and `manifest.json`, which is ours: the digests of the `.idx` files that it was
made from. Megatron looks at the first two kinds and ignores the third.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from playhead.errors import DataError
from playhead.megatron.describe import text_of
from playhead.megatron.idx import Idx
from playhead.megatron.npy import num_bytes, whole_array
from playhead.megatron.plan import Dataset, Mixture
from playhead.megatron.samples import sample_dtype

_LARGEST_UINT32 = 2**32 - 2
MANIFEST_VERSION = 1


@dataclass(frozen=True)
class ArrayFile:
    """One `.npy` file of an entry."""

    affix: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return num_bytes(self.dtype, self.shape)


class Manifest(msgspec.Struct, frozen=True):
    """What an entry was made from: `indexes` maps each prefix to the digest of its `.idx`."""

    version: int
    description: dict[str, Any]
    indexes: dict[str, str]


def shuffle_dtype(num_samples: int) -> np.dtype[Any]:
    return np.dtype(np.int64 if num_samples >= _LARGEST_UINT32 else np.uint32)


def arrays_of(entry: Dataset | Mixture) -> tuple[ArrayFile, ...]:
    if isinstance(entry, Mixture):
        return (
            ArrayFile("dataset_index", np.dtype(np.int16), (entry.num_samples,)),
            ArrayFile("dataset_sample_index", np.dtype(np.int64), (entry.num_samples,)),
        )
    shuffled = max(entry.num_first, entry.num_samples)
    return (
        ArrayFile("document_index", np.dtype(np.int32), (entry.num_positions,)),
        ArrayFile("sample_index", sample_dtype(entry.num_positions), (entry.num_samples + 1, 2)),
        ArrayFile("shuffle_index", shuffle_dtype(entry.num_samples), (shuffled,)),
    )


def num_bytes_of(entry: Dataset | Mixture) -> int:
    return sum(array.num_bytes for array in arrays_of(entry)) + len(text_of(entry.description).encode())


def array_path(cache: Path, entry: Dataset | Mixture, affix: str) -> Path:
    return cache / f"{entry.name}-{affix}.npy"


def description_path(cache: Path, entry: Dataset | Mixture) -> Path:
    return cache / f"{entry.name}-description.txt"


def manifest_path(cache: Path, entry: Dataset | Mixture) -> Path:
    return cache / f"{entry.name}-manifest.json"


def damaged_files(cache: Path, entry: Dataset | Mixture) -> list[str]:
    """The files that Megatron needs and that are missing or cut short."""
    paths = [array_path(cache, entry, array.affix) for array in arrays_of(entry)]
    found = [path.name for path in paths if whole_array(path) is None]
    description = description_path(cache, entry)
    if not description.is_file() or description.read_bytes() != text_of(entry.description).encode():
        found.append(description.name)
    return found


def other_arrays(cache: Path, entry: Dataset | Mixture) -> tuple[str, ...]:
    """How the arrays, all of them whole, differ in shape or type from those of the data as it is."""
    found = []
    for array in arrays_of(entry):
        path = array_path(cache, entry, array.affix)
        if whole_array(path) != (array.shape, array.dtype):
            found.append(f"{path.name}: made from other data; that of now gives {_sizes(array)}")
    return tuple(found)


def _sizes(array: ArrayFile) -> str:
    return f"{' x '.join(f'{length:,}' for length in array.shape)} of {array.dtype}"


def manifest_of(entry: Dataset | Mixture, indexes: dict[str, Idx]) -> Manifest:
    members = entry.members if isinstance(entry, Mixture) else (entry,)
    return Manifest(MANIFEST_VERSION, entry.description, {m.prefix: indexes[m.prefix].digest for m in members})


def read_manifest(cache: Path, entry: Dataset | Mixture) -> Manifest | None:
    path = manifest_path(cache, entry)
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: is not a manifest", found=str(error), fix="remove it and prepare again") from error


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
