"""Where the rows of a text file are: a compiled scan for newlines, eight bytes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from playhead.errors import DataError
from playhead.formats.contract import ScanLimits
from playhead.store import File, Ranges
from playhead.types import BoolArray, IntArray, kernel

BOM = b"\xef\xbb\xbf"
_AHEAD = 1 << 20
ByteArray = npt.NDArray[np.uint8]


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


@kernel
def _find_rows(data: ByteArray, starts: IntArray, ends: IntArray) -> tuple[int, int, bool]:
    """Fill in the rows of whole lines. Returns the number of rows and of lines, and whether all are regular."""
    num_rows = 0
    num_lines = 0
    regular = True
    line = 0
    size = data.size
    words = data[: size // 8 * 8].view(np.uint64)
    newlines = np.uint64(0x0A0A0A0A0A0A0A0A)
    ones = np.uint64(0x0101010101010101)
    tops = np.uint64(0x8080808080808080)
    for word in range(words.size + 1):
        if word * 8 + 8 < size:
            value = words[word] ^ newlines
            if (value - ones) & ~value & tops == np.uint64(0):
                continue
        for position in range(word * 8, min(word * 8 + 8, size)):
            if data[position] != 10 and position != size - 1:
                continue
            # The last line of a file may lack its newline.
            end = position if data[position] == 10 else position + 1
            while end > line and (data[end - 1] == 32 or data[end - 1] == 13 or data[end - 1] == 9):
                end -= 1
            num_lines += 1
            if end > line:
                starts[num_rows] = line
                ends[num_rows] = end
                num_rows += 1
                regular = regular and data[line] == 123 and data[end - 1] == 125
            line = position + 1
    return num_rows, num_lines, regular


def read_lines(file: File, limits: ScanLimits, base: int = 0, line: int = 1, end: int | None = None) -> Iterator[Lines]:
    """The file as runs of whole lines, from the byte at which a line starts up to another.

    Law: the runs' bytes, end to end, are the file between them, a byte order mark left out.
    """
    find = _Finder()
    for at, data in _runs(file, limits, base, file.size if end is None else end):
        lines = find.rows(data, at, line)
        yield lines
        line += lines.num_lines


def gather_lines(file: File, limits: ScanLimits, firsts: IntArray, ends: IntArray) -> Iterator[Lines]:
    """Stretches of whole lines, in the order given; many short ones are read, and found, together.

    Law: the rows are those that `read_lines` finds in each stretch.
    """
    find = _Finder()
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
        lines = find.rows(data, 0, 1)
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
    want = limits.chunk_bytes
    while base < end:
        data = file.read(base, min(want, end - base))
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
    """Where the line that begins at a position is, for messages."""
    return f"{file.path}, line {1 + num_newlines(file, position):,}, byte {position:,}"


class _Finder:
    """Room for the rows of a run, kept from run to run: a row takes two bytes at least."""

    def __init__(self) -> None:
        self._room = np.empty((2, 0), dtype=np.int64)

    def rows(self, data: bytes, base: int, first_line: int) -> Lines:
        if self._room.shape[1] < len(data) // 2 + 1:
            self._room = np.empty((2, len(data) // 2 + 1), dtype=np.int64)
        starts, ends = self._room
        num_rows, num_lines, regular = _find_rows(np.frombuffer(data, dtype=np.uint8), starts, ends)
        return Lines(data, base, first_line, num_lines, starts[:num_rows].copy(), ends[:num_rows].copy(), regular)


def _larger(want: int, file: File, base: int, limits: ScanLimits) -> int:
    if want >= limits.longest_row_bytes:
        raise DataError(
            f"{file.path}: a line longer than {want / 2**20:,.0f} MB at byte {base:,}",
            expected="one sample a line",
            fix="if the file is right, raise the memory per worker (--memory)",
        )
    return min(want * 4, limits.longest_row_bytes)
