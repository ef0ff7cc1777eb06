"""The ledger of a plan: the cursor at every start of a window, so that any step is found by a look-up and a few steps.

On disk it is an append-only file of records of uint64, all of one width and increasing in their first number.
"""

from __future__ import annotations

import bisect
import fcntl
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from playhead.errors import DataError, EndOfStreamError, PlayheadError
from playhead.plan.cursor import Cursor
from playhead.plan.plan import Plan
from playhead.recipe.values import Recipe
from playhead.store import writing_to
from playhead.types import UIntArray

_RECORDS_AT_A_TIME = 64
_STRIDE = 500
_NUMBER_BYTES = 8


@dataclass(frozen=True)
class Ledger:
    """Records of `width` numbers in a file.

    Laws: an entry never changes once written; a record truncated by a kill is ignored and overwritten by the next
    append; appending records that exist already does nothing.
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
        """Add the records that do not exist yet; returns how many. A record that differs is refused."""
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
                    f"{self.path}: a different record for {int(record[0]):,} exists already",
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


def ledger_of(recipe: Recipe, plan: Plan) -> Ledger:
    return Ledger(ledger_file(recipe, plan.fingerprint), len(plan.start().to_record()))


def ledger_file(recipe: Recipe, fingerprint: str) -> Path:
    return Path(recipe.cache_dir) / "ledgers" / f"{fingerprint}.u64"


def nearest(ledger: Ledger, plan: Plan, step: int) -> Cursor:
    """The last recorded cursor not past a step, or the start."""
    record = ledger.at_or_before(step)
    return plan.start() if record is None else Cursor.from_record(record.tolist())


def steps_to_plan(recipe: Recipe, plan: Plan, step: int) -> int:
    """How many steps `seek` has to advance, one by one."""
    known = nearest(ledger_of(recipe, plan), plan, step)
    return 0 if plan.jump(step, known) is not None else step - known.step


def seek(recipe: Recipe, plan: Plan, step: int, progress: Callable[[int], None] | None = None) -> Cursor:
    """The cursor of a step, from the nearest recorded one on; `progress` is called with the number of steps so far."""
    known = cursor = nearest(ledger_of(recipe, plan), plan, step)
    if progress is not None and plan.jump(step, known) is None:
        # A stride past the end stops here; the last seek then refuses the requested step.
        with suppress(EndOfStreamError):
            while cursor.step + _STRIDE < step:
                cursor = plan.seek(cursor.step + _STRIDE, cursor)
                progress(cursor.step - known.step)
    return plan.seek(step, cursor)


def write_ahead(recipe: Recipe, plan: Plan, num_steps: int, progress: Callable[[int], None] | None = None) -> Cursor:
    """Record cursors up to step `num_steps`, or the end of the round; returns the last one reached.

    Records are added as they are found, so an interrupted run resumes from the last one.
    """
    ledger = ledger_of(recipe, plan)
    cursor = nearest(ledger, plan, num_steps)
    number = plan.round_of(cursor)
    fresh = [cursor.to_record()] if cursor.step == 0 else []
    while cursor.step < num_steps:
        found = plan.advance(cursor)
        if found is None:
            break
        before, cursor = cursor, found
        if plan.round_of(cursor) != number:
            break
        if any(new.window != old.window for new, old in zip(cursor.places, before.places, strict=True)):
            fresh.append(cursor.to_record())
            if progress is not None:
                progress(cursor.step)
        if len(fresh) == _RECORDS_AT_A_TIME:
            ledger.append(np.array(fresh, np.uint64))
            fresh.clear()
    if fresh:
        ledger.append(np.array(fresh, np.uint64))
    return cursor


class Recorder:
    """Adds to the ledger during a run.

    Only where the ledger has no gap: a run that began from a state past its last record leaves it unchanged. A
    ledger that cannot be written causes a warning and does not stop the run.
    """

    def __init__(self, recipe: Recipe, plan: Plan) -> None:
        self._ledger = ledger_of(recipe, plan)
        self._plan = plan
        self._works = True

    def moved(self, before: Cursor, after: Cursor) -> None:
        """Record `after` where it is the start of a window that follows the last one recorded."""
        if not self._works or _windows(before) == _windows(after) or self._plan.round_of(after):
            return
        try:
            records = self._ledger.records()
            last = Cursor.from_record(records[-1].tolist()) if len(records) else self._plan.start()
            if _windows(last) == _windows(before):
                found = [after.to_record()] if len(records) else [last.to_record(), after.to_record()]
                self._ledger.append(np.array(found, np.uint64))
        except PlayheadError as error:
            self._works = False
            warnings.warn(f"cannot write the ledger; continuing without it: {error}", stacklevel=2)


def _windows(cursor: Cursor) -> list[int]:
    return [place.window for place in cursor.places]
