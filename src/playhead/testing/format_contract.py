"""The laws of a format, tried on small files of it; see `check_format`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from playhead.errors import PlayheadError, StoreError
from playhead.formats.rows import Rows, Sample
from playhead.index.opened import Index
from playhead.store import compression_of
from playhead.testing.format_case import FilesOfPaths, FormatCase, Read
from playhead.testing.laws import try_laws

_NUM_CUTS = 12
_NUM_BROKEN = 4
_JUNK = (b"\xff", b"\0", b"\n{]")
_UNITS = "row|line|byte|block|batch|group|member|message|record|document|sequence|sample|entry|entries|column|token"
_PLACE = re.compile(rf"\b(?:{_UNITS})s?\s+\d|\d\s+(?:\w+\s+)?(?:{_UNITS})s?\b")


def check_format(
    source: Mapping[str, Any],
    files: Mapping[str, bytes],
    samples: Sequence[Sample],
    lengths: Sequence[int] | None = None,
) -> None:
    """Check that a format reads small files right, and refuses broken ones; what it does wrong is an AssertionError.

    `source` is a source of a recipe (`format`, `path`, `options`, `length`, ...) whose paths are relative; `files` are
    the contents of its files by name; `samples` are what they hold, in order, before decoding, and `lengths` are their
    lengths as an index has them (seconds in milliseconds). In a test:

        check_format({"format": "mine", "path": "*.mine"}, {"a.mine": b"..."}, samples=[{"id": "x"}])

    Laws: as many rows are scanned as are read, by one reader in any order and number at a time; every file is reached
    through `Files` alone; the bytes of the index are the same for one and several workers; a file that changed is
    refused; of a file that is empty or cut short no wrong sample comes; a row that is broken breaks no other; what goes
    wrong names the file and, where rows have bytes, a row, line, byte or the like with its number, or how many there
    are.
    """
    with TemporaryDirectory() as folder:
        try_laws(_LAWS, _FormatTrial(Path(folder), source, dict(files), list(samples), lengths))


class _FormatTrial:
    """The arguments of `check_format`, and a directory for every case."""

    def __init__(
        self,
        folder: Path,
        source: Mapping[str, Any],
        files: dict[str, bytes],
        samples: list[Sample],
        lengths: Sequence[int] | None,
    ) -> None:
        self.files, self.samples, self.lengths = files, samples, lengths
        self._folder, self._source, self._numbers = folder, source, count()

    def case(self, changed: Mapping[str, bytes] | None = None, storage: FilesOfPaths | None = None) -> FormatCase:
        directory = self._folder / f"case{next(self._numbers)}"
        return FormatCase(directory, self._source, {**self.files, **(changed or {})}, storage)


def _rows_are_scanned_and_read(trial: _FormatTrial) -> None:
    case = trial.case()
    index = _indexed(trial, case)
    forward = list(range(len(trial.samples)))
    orders = {
        "in order": forward,
        "backwards": forward[::-1],
        "every other, then the rest": forward[::2] + forward[1::2],
        "the first and the last, twice each": [0, 0, forward[-1], forward[-1]],
        "in order again": forward,
    }
    read = case.reader(index)
    found = {name: read(rows) for name, rows in orders.items()}
    for name, rows in orders.items():  # after all were read: samples that a reader returned must not change
        _expect_samples(trial, rows, found[name], f"read {name}")
    for row in forward:
        _expect_samples(trial, [row], read([row]), "read alone, by a reader that read others before")
        _expect_samples(trial, [row], case.reader(index)([row]), "read alone, by a new reader")


def _files_are_reached_through_the_storage_alone(trial: _FormatTrial) -> None:
    """The files are in memory, and the disk has none of them."""
    case = trial.case(storage=FilesOfPaths())
    index = _indexed(trial, case)
    rows = range(len(trial.samples))
    _expect_samples(trial, rows, case.reader(index)(rows), "read from memory")


def _index_bytes_do_not_depend_on_workers(trial: _FormatTrial) -> None:
    case, written = trial.case(), []
    for how in ({"workers": 1, "processes": False}, {"workers": 3, "processes": True}, {"memory_mb": 8}):
        directory = case.index(force=True, **how).directory
        written.append({path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.npy")})
    for other in written[1:]:
        differing = [str(name) for name in written[0] | other if written[0].get(name) != other.get(name)]
        _expect(not differing, f"the bytes of {', '.join(differing)} depend on workers or memory")


def _changed_files_are_refused(trial: _FormatTrial) -> None:
    for name in trial.files:
        case = trial.case()
        index = case.index()
        with (case.directory / name).open("ab") as file:
            file.write(b"\0")
        try:
            case.reader(index)(range(index.meta.num_rows))
        except StoreError as error:
            _expect(name in str(error), f"the error about the changed file {name} does not name it: {error}")
        else:
            raise AssertionError(f"rows are read although {name} has changed since it was indexed")


def _of_files_cut_short_come_right_samples_or_errors(trial: _FormatTrial) -> None:
    located = {name for name, _, _, _ in _places(trial)}
    for name, data in trial.files.items():
        for size in sorted({len(data) * part // _NUM_CUTS for part in range(_NUM_CUTS)}):
            outcome = _Outcome(
                trial, f"{name} cut to {size:,} bytes", {name: data[:size]}, name in located and size > 0
            )
            for found in outcome.samples.values():
                right = any(_same(found, known) for known in trial.samples)
                _expect(right, f"{outcome.what}: returns a wrong sample, {found!r}")


def _a_broken_row_is_named_and_breaks_no_other(trial: _FormatTrial) -> None:
    places = list(_places(trial))
    for name in dict.fromkeys(name for name, _, _, _ in places):
        inside = [(row, first, end) for found, row, first, end in places if found == name]
        for row, first, end in inside[:: max(1, len(inside) // _NUM_BROKEN)]:
            low, high = first + (end - first) // 4, end - max(1, (end - first) // 4)
            for junk in _JUNK if low < high else ():
                data = trial.files[name]
                broken = data[:low] + (junk * (high - low))[: high - low] + data[high:]
                outcome = _Outcome(trial, f"{name} with row {row:,} broken", {name: broken}, True)
                touched = {other for other, begin, until in inside if begin < high and low < until}
                if outcome.num_rows == len(trial.samples):  # else the rows after it may have other numbers
                    outcome.expect_all_but(touched)


_LAWS = (
    _rows_are_scanned_and_read,
    _files_are_reached_through_the_storage_alone,
    _changed_files_are_refused,
    _of_files_cut_short_come_right_samples_or_errors,
    _a_broken_row_is_named_and_breaks_no_other,
    _index_bytes_do_not_depend_on_workers,
)


class _Outcome:
    """The outcome of reading broken files: the readable samples, by raw row. Every error must name the file."""

    def __init__(self, trial: _FormatTrial, what: str, broken: dict[str, bytes], located: bool) -> None:
        self.what, self._trial = what, trial
        self.samples: dict[int, Sample] = {}
        self.num_rows = 0
        case = trial.case(broken)
        try:
            index = case.index()
            self.num_rows = index.meta.num_rows
        except PlayheadError as error:
            self._expect_named(case, error)
            if located:
                _expect(_PLACE.search(str(error)), f"{what}: the error does not say where in the file: {error}")
            return
        except Exception as error:
            raise AssertionError(f"{what}: no error of Playhead, but {error!r}") from error
        for row in range(self.num_rows):
            self._read(case, case.reader(index), row)

    def expect_all_but(self, touched: set[int]) -> None:
        for row, expected in enumerate(self._trial.samples):
            if row not in touched:
                _expect(row in self.samples, f"{self.what}: row {row:,} can no longer be read")
                found = self.samples[row]
                _expect(_same(found, expected), f"{self.what}: row {row:,} is {found!r}, not {expected!r}")

    def _read(self, case: FormatCase, read: Read, row: int) -> None:
        try:
            (self.samples[row],) = read([row])
        except PlayheadError as error:
            self._expect_named(case, error)
        except Exception as error:
            raise AssertionError(f"{self.what}: reading row {row:,}: no error of Playhead, but {error!r}") from error

    def _expect_named(self, case: FormatCase, error: PlayheadError) -> None:
        named = any(name in str(error) for name in case.names)
        _expect(named, f"{self.what}: the error names no file: {error}")


def _indexed(trial: _FormatTrial, case: FormatCase) -> Index:
    index = case.index()
    num_rows, num_samples = index.meta.num_rows, len(trial.samples)
    _expect(num_rows == num_samples, f"the scan finds {num_rows:,} rows, and there are {num_samples:,} samples")
    if trial.lengths is not None:
        found = None if index.lengths is None else index.lengths.tolist()
        _expect(found == list(trial.lengths), f"the scan finds the lengths {found}, not {list(trial.lengths)}")
    return index


def _places(trial: _FormatTrial) -> Iterator[tuple[str, int, int, int]]:
    """The bytes of every row: file, row, first byte and end. Compressed files are left out."""
    case = trial.case()
    index = case.index()
    rows: Rows = index.locate(np.arange(index.meta.num_rows))
    for track, places in rows.places.items():
        firsts, ends = places.ranges
        for row, (path, first, end) in enumerate(zip(rows.paths(track), firsts, ends, strict=True)):
            if compression_of(path) is None:
                yield case.name_of(path), row, first, end


def _expect_samples(trial: _FormatTrial, rows: Sequence[int], found: Sequence[Sample], how: str) -> None:
    for row, sample in zip(rows, found, strict=True):
        expected = trial.samples[row]
        _expect(_same(sample, expected), f"{how}, row {row:,} is {sample!r}, not {expected!r}")


def _expect(holds: object, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _same(found: Sample, expected: Sample) -> bool:
    return found.keys() == expected.keys() and all(_equal(found[name], expected[name]) for name in expected)


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(found, np.ndarray) or isinstance(expected, np.ndarray):
        return np.array_equal(found, expected) and np.asarray(found).dtype == np.asarray(expected).dtype
    return bool(found == expected)
