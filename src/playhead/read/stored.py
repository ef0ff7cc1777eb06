"""Arrays that are not in memory yet: where their numbers are stored, and how they are read into place."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from playhead.formats.conversation import Conversation, MediaInTokens
from playhead.formats.media import DecodedMedia, Media
from playhead.formats.rows import Sample
from playhead.store import Buffer, Extent, Ranges, Stamp
from playhead.types import Array

Dtype = np.dtype[Any]

_FLOAT32 = np.dtype(np.float32)
_SCRATCH_BYTES = 1 << 20


class StoredArray(Struct, frozen=True, eq=False):
    """Contiguous numbers in C order, in a file or in bytes that were read.

    With a `scale` whole numbers become float32 when they are read: each is multiplied by it. It has the attributes of
    an array that collation and length checks use, and `np.asarray` reads it.
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
        """A slice along the first axis."""
        first, end, step = chosen.indices(len(self))
        assert step == 1, "stored arrays support slices with step 1 only"
        end = max(first, end)
        width = prod(self.shape[1:]) * self.stored.itemsize
        low, high = first * width, end * width
        data = self.data.cut(low, high) if isinstance(self.data, Extent) else self.data[low:high]
        return StoredArray(data, self.stored, (end - first, *self.shape[1:]), self.scale)

    def __array__(self, dtype: Dtype | None = None, copy: bool | None = None) -> Array:
        out = np.empty(self.shape, self.dtype)
        read_into([(self, out)])
        return out if dtype is None else out.astype(dtype, copy=False)


_Unread = tuple[Extent, StoredArray, Array]  # where the bytes are, what they are, and where they go


def read_into(wanted: Iterable[tuple[StoredArray, Array]]) -> None:
    """Write arrays into their places, which are contiguous and of their shapes and dtypes.

    Laws: bytes that are delivered as they are stored are read straight into their place, with one request to each
    file. Others of a file are read together too, up to a bound, and are converted into their place.
    """
    by_file: dict[tuple[int, str, Stamp], list[_Unread]] = {}
    for array, place in wanted:
        if not place.size:
            continue
        if isinstance(array.data, Extent):
            file = array.data.file
            by_file.setdefault((id(file.files), file.path, file.stamp), []).append((array.data, array, place))
        else:
            _convert(array, array.data, place)
    for unread in by_file.values():
        unread.sort(key=lambda each: each[0].first)
        as_stored = [each for each in unread if each[1].scale is None]
        if as_stored:
            _read(as_stored, [place.reshape(-1).view(np.uint8).data for _, _, place in as_stored])
        _read_converted([each for each in unread if each[1].scale is not None])


def _read_converted(unread: list[_Unread]) -> None:
    """Read arrays into reused memory, and convert them into their places."""
    while unread:
        ends = list(accumulate(extent.size for extent, _, _ in unread))
        count = max(1, bisect_right(ends, _SCRATCH_BYTES))
        together, unread = unread[:count], unread[count:]
        scratch = np.empty(ends[count - 1], np.uint8).data
        parts = [scratch[end - extent.size : end] for end, (extent, _, _) in zip(ends, together, strict=False)]
        _read(together, parts)
        for part, (_, array, place) in zip(parts, together, strict=True):
            _convert(array, part, place)


def _read(unread: list[_Unread], into: list[memoryview]) -> None:
    file = unread[0][0].file
    ranges = Ranges([extent.first for extent, _, _ in unread], [extent.end for extent, _, _ in unread])
    file.files.read(file.path, file.stamp, ranges, into)


def _convert(array: StoredArray, data: Buffer, place: Array) -> None:
    numbers = np.frombuffer(data, array.stored).reshape(array.shape)
    if array.scale is None:
        place[...] = numbers
    else:
        np.multiply(numbers, np.float32(array.scale), out=place, dtype=np.float32, casting="unsafe")


def read_arrays(samples: list[Sample]) -> list[Sample]:
    """The samples with their stored arrays read: each a separate writable array."""
    wanted: list[tuple[StoredArray, Array]] = []
    found: list[Sample] = []
    for sample in samples:
        made = dict(sample)
        for name, value in sample.items():
            if type(value) is StoredArray:
                made[name] = _to_read(value, wanted)
            elif type(value) is MediaInTokens:
                made[name] = replace(value, media=[_to_read(each, wanted) for each in value.media])
            elif type(value) is Conversation:
                made[name] = value.with_media(_decoded_to_read(part.media, wanted) for part in value.media())
        found.append(made)
    if not wanted:
        return samples
    read_into(wanted)
    return found


def _to_read(value: Any, wanted: list[tuple[StoredArray, Array]]) -> Any:
    """The array that a stored one is to be read into; any other value as it is."""
    if type(value) is not StoredArray:
        return value
    place: Array = np.empty(value.shape, value.dtype)
    wanted.append((value, place))
    return place


def _decoded_to_read(media: Media | DecodedMedia, wanted: list[tuple[StoredArray, Array]]) -> Media | DecodedMedia:
    return replace(media, value=_to_read(media.value, wanted)) if isinstance(media, DecodedMedia) else media
