"""Arrays that are not in memory yet: where their numbers are, and how they come to their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from playhead.formats.rows import Sample
from playhead.store import Buffer, Extent, File, Ranges, Stamp
from playhead.types import Array

Dtype = np.dtype[Any]

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class StoredArray:
    """Numbers in a file, or in bytes that were read, one after another in the order of C.

    With a `scale` whole numbers become float32 when they are read: each is multiplied by it. It has what collation and
    length checks ask of an array, and `np.asarray` reads it.
    """

    data: Extent | Buffer
    stored: Dtype
    shape: tuple[int, ...]
    scale: float | None = None

    @property
    def dtype(self) -> Dtype:
        return self.stored if self.scale is None else _FLOAT32

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: slice) -> StoredArray:
        """A stretch along the first axis."""
        first, end, step = chosen.indices(len(self))
        assert step == 1, "arrays are cut, not thinned out"
        end = max(first, end)
        width = prod(self.shape[1:]) * self.stored.itemsize
        low, high = first * width, end * width
        data = self.data.cut(low, high) if isinstance(self.data, Extent) else self.data[low:high]
        return replace(self, data=data, shape=(end - first, *self.shape[1:]))

    def __array__(self, dtype: Dtype | None = None, copy: bool | None = None) -> Array:
        out = np.empty(self.shape, self.dtype)
        read_into([(self, out)])
        return out if dtype is None else out.astype(dtype, copy=False)


def read_into(wanted: Iterable[tuple[StoredArray, Array]]) -> None:
    """Write arrays into their places, which are contiguous and of their shapes and dtypes.

    Law: bytes that are delivered as they are stored are read straight into their place, with one request to each file.
    """
    by_file: dict[tuple[int, str, Stamp], list[tuple[Extent, Array]]] = {}
    scratch = np.empty(0, np.uint8)
    for array, place in wanted:
        data = array.data
        if not place.size:
            continue
        if array.scale is None and isinstance(data, Extent):
            file = data.file
            by_file.setdefault((id(file.files), file.path, file.stamp), []).append((data, place))
            continue
        if isinstance(data, Extent):
            if data.size > len(scratch):
                scratch = np.empty(data.size, np.uint8)
            _read(data.file, [(data, scratch[: data.size])])
            data = scratch[: data.size].data
        numbers = np.frombuffer(data, array.stored).reshape(array.shape)
        if array.scale is None:
            place[...] = numbers
        else:
            np.multiply(numbers, np.float32(array.scale), out=place, dtype=np.float32, casting="unsafe")
    for pairs in by_file.values():
        _read(pairs[0][0].file, sorted(pairs, key=lambda pair: pair[0].first))


def _read(file: File, pairs: list[tuple[Extent, Array]]) -> None:
    ranges = Ranges([extent.first for extent, _ in pairs], [extent.end for extent, _ in pairs])
    file.files.read(file.path, file.stamp, ranges, [place.reshape(-1).view(np.uint8).data for _, place in pairs])


def read_arrays(samples: list[Sample]) -> list[Sample]:
    """The samples with their stored arrays read: each an array of its own that may be written to."""
    wanted: list[tuple[StoredArray, Array]] = []
    found: list[Sample] = []
    for sample in samples:
        made = dict(sample)
        for name, value in sample.items():
            if type(value) is StoredArray:
                made[name] = np.empty(value.shape, value.dtype)
                wanted.append((value, made[name]))
        found.append(made)
    if not wanted:
        return samples
    read_into(wanted)
    return found
