"""Where the rows of a text file are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from playhead.errors import DataError
from playhead.formats.contract import ScanLimits
from playhead.store import File, Ranges, ReadingAhead
from playhead.types import BoolArray, IntArray

BOM = b"\xef\xbb\xbf"
_AHEAD = 1 << 20
_NEWLINE = 10
_WHITE_BYTES = b" \t\r"
_WHITE = np.zeros(256, dtype=np.bool_)
_WHITE[list(_WHITE_BYTES)] = True


@dataclass(frozen=True)
class Lines:
    """Whole lines of a file: `data` starts at byte `base`; rows are the lines that are not blank.

    `starts` and `ends` bound each row inside `data`, without the white space after it. `regular` says that
    every row starts with { and ends with }: then no object can reach over a line end. Where `data` are several
    stretches of the file, `positions` are the first bytes of the rows in it. `num_left_out` counts lines that are not
    blank, and not rows either.
    """

    data: bytes
    base: int
    first_line: int
    num_lines: int
    starts: IntArray
    ends: IntArray
    regular: bool
    positions: IntArray | None = None
    num_left_out: int = 0

    @property
    def places(self) -> tuple[IntArray, IntArray]:
        """The first byte and the end of each row in the file."""
        firsts = self.starts + self.base if self.positions is None else self.positions
        return firsts, firsts + (self.ends - self.starts)

    def only(self, kept: BoolArray) -> Lines:
        """The same lines, of which only some are rows."""
        if kept.all():
            return self
        starts, ends, positions = (array[kept] for array in (self.starts, self.ends, self.places[0]))
        left_out = int((~kept).sum())
        return replace(self, starts=starts, ends=ends, positions=positions, regular=False, num_left_out=left_out)

    def rows(self) -> Iterator[tuple[bytes, int]]:
        """The bytes of each row, and its first byte in the file."""
        bounds = self.starts.tolist(), self.ends.tolist(), self.places[0].tolist()
        for start, end, first in zip(*bounds, strict=True):
            yield self.data[start:end], first


def read_lines(file: File, limits: ScanLimits, base: int = 0, line: int = 1, end: int | None = None) -> Iterator[Lines]:
    """The file as runs of whole lines, from the byte at which a line starts up to another.

    Law: the bytes of all runs, concatenated, are that part of the file, without a byte order mark.
    """
    for at, data in _runs(file, limits, base, file.size if end is None else end):
        lines = find_rows(data, at, line)
        yield lines
        line += lines.num_lines


def gather_lines(file: File, limits: ScanLimits, firsts: IntArray, ends: IntArray) -> Iterator[Lines]:
    """Stretches of whole lines, in the order given; many short ones are read and parsed together.

    Law: the rows are those that `read_lines` finds in each stretch.
    """
    low = 0
    sizes = np.concatenate([[0], np.cumsum(ends - firsts + 1)])
    while low < len(firsts):
        high = int(np.searchsorted(sizes, sizes[low] + limits.chunk_bytes, side="right")) - 1
        if high <= low + 1:
            yield from read_lines(file, limits, int(firsts[low]), end=int(ends[low]))
            low += 1
            continue
        ranges = Ranges(firsts[low:high].tolist(), ends[low:high].tolist())
        data = b"".join(piece for read in file.files.read(file.path, file.stamp, ranges) for piece in (read, b"\n"))
        lines = find_rows(data, 0, 1)
        of_row = np.searchsorted(sizes[low:high] - sizes[low], lines.starts, side="right") - 1
        positions = lines.starts + (firsts[low:high] - (sizes[low:high] - sizes[low]))[of_row]
        yield replace(lines, positions=positions)
        low = high


@dataclass(frozen=True)
class EveryLine:
    """Whole lines of a file, blank ones too. `ends` leave out the line's end, LF or CR LF."""

    data: bytes
    base: int
    starts: IntArray
    ends: IntArray

    def contents(self) -> list[bytes]:
        return [self.data[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


def read_every_line(file: File, limits: ScanLimits, base: int = 0, end: int | None = None) -> Iterator[EveryLine]:
    """The file as runs of whole lines, as `read_lines`, with a row for every line."""
    for at, data in _runs(file, limits, base, file.size if end is None else end):
        found = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(found == 10)
        if found[-1] != 10:
            ends = np.append(ends, len(data))
        starts = np.concatenate([[0], ends[:-1] + 1])
        returns = (ends > starts) & (found[ends - 1] == 13)
        yield EveryLine(data, at, starts, ends - returns)


def _runs(file: File, limits: ScanLimits, base: int, end: int) -> Iterator[tuple[int, bytes]]:
    if base == 0 and file.read(0, len(BOM)) == BOM:
        base = len(BOM)
    want, ahead = limits.chunk_bytes, ReadingAhead(file, end)
    while base < end:
        data = ahead.read(base, min(want, end - base))
        if base + len(data) < end:
            cut = data.rfind(b"\n") + 1
            if cut == 0:
                want = _larger(want, file, base, limits)
                continue
            data = data[:cut]
        yield base, data
        want = limits.chunk_bytes
        base += len(data)


def line_start(file: File, position: int) -> int:
    """The first byte, at or after a position, at which a line starts; the size of the file where none does."""
    if position == 0:
        return 0
    for first in range(position - 1, file.size, _AHEAD):
        found = file.read(first, _AHEAD).find(b"\n")
        if found >= 0:
            return first + found + 1
    return file.size


def num_newlines(file: File, end: int) -> int:
    """How many lines end before a position: to number the line that begins there."""
    return sum(file.read(first, min(_AHEAD, end - first)).count(b"\n") for first in range(0, end, _AHEAD))


def line_place(file: File, position: int) -> str:
    """The location of the line that begins at a position, for messages."""
    return f"{file.path}, line {1 + num_newlines(file, position):,}, byte {position:,}"


def find_rows(data: bytes, base: int, first_line: int) -> Lines:
    """The rows of whole lines that begin at byte `base`; the last line of a file may lack its newline."""
    found = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(found == _NEWLINE)
    if found[-1] != _NEWLINE:
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1] + 1))
    num_lines = len(ends)
    white = _WHITE[found[ends - 1]] & (ends > starts)
    for i in np.flatnonzero(white).tolist() if white.any() else ():
        ends[i] = starts[i] + len(data[starts[i] : ends[i]].rstrip(_WHITE_BYTES))
    filled = ends > starts
    if not filled.all():
        starts, ends = starts[filled], ends[filled]
    regular = bool((found[starts] == ord("{")).all() and (found[ends - 1] == ord("}")).all())
    return Lines(data, base, first_line, num_lines, starts, ends, regular)


def _larger(want: int, file: File, base: int, limits: ScanLimits) -> int:
    if want >= limits.longest_row_bytes:
        raise DataError(
            f"{file.path}: a line longer than {want / 2**20:,.0f} MB at byte {base:,}",
            expected="one sample a line",
            fix="if the file is correct, raise the memory per worker (--memory)",
        )
    return min(want * 4, limits.longest_row_bytes)
