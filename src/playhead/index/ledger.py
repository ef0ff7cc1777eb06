"""An append-only file of fixed-width records of uint64, increasing in their first number.

What the numbers mean is the business of those who write them.
"""

from __future__ import annotations

import bisect
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from playhead.errors import DataError
from playhead.store import writing_to
from playhead.types import UIntArray

_NUMBER_BYTES = 8


@dataclass(frozen=True)
class Ledger:
    """Records of `width` numbers in a file.

    Laws: an entry once written never changes; a record torn by a kill is not seen, and overwritten by the next
    append; appending what is already there does nothing.
    """

    path: Path
    width: int

    def records(self) -> UIntArray:
        """All whole records, mapped."""
        size = self.path.stat().st_size if self.path.exists() else 0
        count = size // (self.width * _NUMBER_BYTES)
        if count == 0:
            return np.empty((0, self.width), dtype=np.uint64)
        return np.memmap(self.path, dtype="<u8", mode="r", shape=(count, self.width))

    def at_or_before(self, value: int) -> UIntArray | None:
        """The last record whose first number is at most `value`."""
        records = self.records()
        place = bisect.bisect_right(range(len(records)), value, key=lambda i: int(records[i, 0]))
        return None if place == 0 else np.array(records[place - 1])

    def append(self, records: UIntArray) -> int:
        """Add the records that are not there yet; returns how many. A record that differs from ours is refused."""
        assert records.ndim == 2
        assert records.shape[1] == self.width
        assert bool((records[1:, 0] > records[:-1, 0]).all())
        with self._locked() as descriptor:
            known = self.records()
            last = int(known[-1, 0]) if len(known) else -1
            fresh = records[np.searchsorted(records[:, 0], np.uint64(last), side="right") :] if last >= 0 else records
            self._compare(known, records[: len(records) - len(fresh)])
            data = fresh.astype("<u8").tobytes()
            with writing_to(self.path):
                end = len(known) * self.width * _NUMBER_BYTES
                while data:
                    written = os.pwrite(descriptor, data, end)
                    data, end = data[written:], end + written
                os.fsync(descriptor)
        return len(fresh)

    def _compare(self, known: UIntArray, again: UIntArray) -> None:
        for record in again:
            place = bisect.bisect_left(range(len(known)), int(record[0]), key=lambda i: int(known[i, 0]))
            if place == len(known) or not np.array_equal(known[place], record):
                raise DataError(
                    f"{self.path}: another record for {int(record[0]):,} is already there",
                    found=str(record.tolist()),
                    expected=str(np.array(known[min(place, len(known) - 1)]).tolist()),
                    fix="two different streams share this file: remove it, or give one another `cache_dir`",
                )

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with writing_to(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)
