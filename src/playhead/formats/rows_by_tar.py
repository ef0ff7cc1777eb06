"""The rows of one manifest of many tars, grouped by the `shard_id` that each has: read once, not once for each tar."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from playhead.errors import DataError
from playhead.formats.contract import ScanLimits
from playhead.formats.jsonl import row_object
from playhead.formats.lines import Lines, line_place, read_lines
from playhead.formats.rows import Sample
from playhead.store import File, Stamp
from playhead.types import IntArray

SHARD_ID = "shard_id"
_NO_TAR = -1  # of rows that are left out, and have none
_NUMBERS_END = 1 << 62
_RUN = np.dtype([("number", "<i8"), ("first", "<i8"), ("end", "<i8")])
_RUNS_AT_ONCE = 1 << 18

_Runs = npt.NDArray[np.void]


class _Row(msgspec.Struct, frozen=True, gc=False):
    shard_id: Annotated[int, msgspec.Meta(ge=0, lt=_NUMBERS_END)]


_ROWS = msgspec.json.Decoder(_Row)


@dataclass(frozen=True)
class RowsByTar:
    """Stretches of whole lines of a manifest, those of each tar together, in the order of the manifest.

    They are in a file without a name, not in memory: in a mixed manifest every row is a stretch.
    """

    _runs: _Runs
    _bounds: dict[int, tuple[int, int]]

    @property
    def numbers(self) -> list[int]:
        return sorted(self._bounds)

    def of(self, number: int) -> tuple[IntArray, IntArray]:
        """The first byte and the end of each stretch of a tar."""
        low, high = self._bounds.get(number, (0, 0))
        return np.array(self._runs["first"][low:high]), np.array(self._runs["end"][low:high])


_last: dict[tuple[str, Stamp], RowsByTar] = {}


def rows_by_tar(manifest: File, limits: ScanLimits) -> RowsByTar:
    """The rows of a manifest by the numbers of their tars. The last manifest is kept: its tars are scanned in turn."""
    key = manifest.path, manifest.stamp
    if key not in _last:
        found = _grouped(manifest, limits)
        _last.clear()
        _last[key] = found
    return _last[key]


def _grouped(manifest: File, limits: ScanLimits) -> RowsByTar:
    """A stable counting sort of the stretches by number, with a part at a time in memory."""
    counts: Counter[int] = Counter()
    with TemporaryFile() as file:
        for lines in read_lines(manifest, limits):
            runs = _runs_of(manifest, lines)
            numbers, times = np.unique(runs["number"], return_counts=True)
            counts.update(dict(zip(numbers.tolist(), times.tolist(), strict=True)))
            file.write(runs.tobytes())
        if not counts:
            return RowsByTar(np.empty(0, _RUN), {})
        ends = np.cumsum(list(counts.values())).tolist()
        bounds = {number: (end - counts[number], end) for number, end in zip(counts, ends, strict=True)}
        filled = {number: low for number, (low, _) in bounds.items()}
        with TemporaryFile() as target:
            grouped = np.memmap(target, _RUN, "w+", shape=(ends[-1],))
        file.seek(0)
        while data := file.read(_RUNS_AT_ONCE * _RUN.itemsize):
            runs = np.frombuffer(data, _RUN)
            runs = runs[np.argsort(runs["number"], kind="stable")]
            numbers, firsts, times = np.unique(runs["number"], return_index=True, return_counts=True)
            for number, first, count in zip(numbers.tolist(), firsts.tolist(), times.tolist(), strict=True):
                grouped[filled[number] : filled[number] + count] = runs[first : first + count]
                filled[number] += count
    return RowsByTar(grouped, bounds)


def _runs_of(manifest: File, lines: Lines) -> _Runs:
    """Rows that follow one another and are of the same tar, as one stretch each."""
    numbers = _numbers(manifest, lines)
    firsts, ends = lines.places
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
    runs = np.empty(len(begins), _RUN)
    runs["number"], runs["first"] = numbers[begins], firsts[begins]
    runs["end"] = ends[np.append(begins[1:], len(numbers)) - 1]
    return runs


def _numbers(manifest: File, lines: Lines) -> IntArray:
    if lines.regular:
        try:
            rows = _ROWS.decode_lines(lines.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rows = []  # one of them is named in the message
        if len(rows) == lines.starts.size:
            return np.array([row.shard_id for row in rows], np.int64)
    return np.array([_number(manifest, raw, position) for raw, position in lines.rows()], np.int64)


def _number(manifest: File, raw: bytes, position: int) -> int:
    try:
        return _shard_id(row_object(raw, "replace"))
    except DataError as error:
        error.at(line_place(manifest, position))
        raise


def _shard_id(row: Sample) -> int:
    found = row.get(SHARD_ID)
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _NUMBERS_END:
        return found
    if row.get("_skipme"):
        return _NO_TAR
    raise DataError(
        "cannot tell which tar holds the row",
        found=f"{SHARD_ID}: {found!r}, in one manifest for several tars",
        expected="a whole number that is in the name of a tar, such as 3 in `audio_3.tar`",
        fix="name the manifests of all tars in `path`, or write `shard_id` into every row",
    )
