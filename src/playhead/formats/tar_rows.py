"""Rows of a tar: each is some consecutive members, of which only parts need be read."""

from __future__ import annotations

from collections.abc import Iterator

from playhead.formats.rows import Rows
from playhead.formats.tar import TarMember
from playhead.store import Buffer, Extent, File, Ranges


def row_tars(rows: Rows, track: str, ends: list[int], tail_bytes: int = 0) -> Iterator[RowTar]:
    """The rows of a track, each read up to one of `ends`, plus `tail_bytes` at its end."""
    assert rows.fetch is not None
    fetch, paths, ranges = rows.fetch, rows.paths(track), rows.places[track].ranges
    count = len(paths)
    tails: list[int] = []
    if tail_bytes:
        bounds = zip(*ranges, ends, strict=True)
        tails = [end if until == end else max(first, end - tail_bytes) for first, end, until in bounds]
    wanted = Ranges(ranges.firsts + tails, ends + ranges.ends[: len(tails)])
    found = fetch([*paths, *paths[: len(tails)]], wanted)
    files = {path: File(fetch.files, path, fetch.stamps[path]) for path in set(paths)}
    for i, (path, first, end) in enumerate(zip(paths, *ranges, strict=True)):
        tail = found[count + i] if tails else b""
        yield RowTar(rows, i, Extent(files[path], first, end, found[i]), tail)


class RowTar:
    """A row of a tar as a small tar, parts of which are read on demand."""

    def __init__(self, rows: Rows, number: int, row: Extent, tail: Buffer = b"") -> None:
        self._rows, self._number, self._row = rows, number, row
        self.size = row.size
        self._pieces = [(0, row.head), (row.size - len(tail), tail)]

    @property
    def path(self) -> str:
        return f"{self._rows.place(self._number)} on"

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        for first, piece in self._pieces:
            if first <= offset and end <= first + len(piece):
                return bytes(piece[offset - first : end - first])
        found = bytes(self._row.part(offset, end))
        self._pieces.append((offset, found))
        return found

    def extent(self, member: TarMember) -> Extent:
        """The content of a member, as an extent with its known bytes."""
        head: Buffer = b""
        for first, piece in self._pieces:
            inside = member.data - first
            if 0 <= inside < len(piece):
                head = memoryview(piece)[inside : inside + member.size]
        begin = self._row.first + member.data
        return Extent(self._row.file, begin, begin + member.size, head)
