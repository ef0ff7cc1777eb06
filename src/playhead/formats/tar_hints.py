"""Headers of a tar read many at a time, using the sample offsets of a sidecar.

Law: the bytes are those of the file, and every header is still parsed, one after another. A stale
or wrong sidecar costs time, and changes nothing.
"""

from __future__ import annotations

import numpy as np

from playhead.formats import sidecar
from playhead.formats.contract import ScanLimits
from playhead.store import Buffer, File, Ranges
from playhead.types import UIntArray

_BEFORE = 1 << 12  # small members that end a sample, with their headers
_AFTER = 1 << 11  # the headers of its first member, in PAX too
_AT_ONCE = 256
_FEWEST_BYTES = 1 << 14  # a sample: smaller ones are faster to read one after another


class TarHints:
    """The bytes around the beginnings of samples, read ahead in the order of the file."""

    def __init__(self, file: File, offsets: UIntArray) -> None:
        self._file, self._offsets = file, offsets.astype(np.int64)
        self._windows: list[tuple[int, Buffer]] = []
        self._low = 0

    def window(self, offset: int, size: int) -> tuple[int, Buffer] | None:
        """Bytes that include the requested ones, and the offset of the first; None if no hint is near."""
        number = int(np.searchsorted(self._offsets, offset + size - _AFTER))
        if number == len(self._offsets) or self._offsets[number] - _BEFORE > offset or offset + size > self._file.size:
            return None
        if not 0 <= number - self._low < len(self._windows):
            self._read_from(number)
        return self._windows[number - self._low]

    def _read_from(self, number: int) -> None:
        chosen = self._offsets[number : number + _AT_ONCE]
        firsts = np.maximum(chosen - _BEFORE, 0).tolist()
        ends = np.minimum(chosen + _AFTER, self._file.size).tolist()
        found = self._file.files.read(self._file.path, self._file.stamp, Ranges(firsts, ends))
        self._windows, self._low = list(zip(firsts, found, strict=True)), number


def tar_hints(file: File, limits: ScanLimits) -> TarHints | None:
    """The hints of a sidecar, if there is one and it saves time."""
    offsets = sidecar.offsets_of(file, limits)
    if offsets is None or file.size < _FEWEST_BYTES * len(offsets):
        return None
    return TarHints(file, offsets)
