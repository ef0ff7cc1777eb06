"""Rows to read: of which shards, and where their bytes are in each track."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import Struct

from playhead.store import Buffer, Extent, File, Files, Ranges, Stamp, ask_together, num_costly
from playhead.types import IntArray, UIntArray

Sample = dict[str, Any]

_WHOLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Shard:
    """The files of one shard by role, in a fixed order; the first names the shard in messages.

    `num_rows` is how many rows it must have, where something beside its files says so.
    """

    files: tuple[tuple[str, str], ...]
    num_rows: int | None = None

    @property
    def name(self) -> str:
        return self.files[0][1]

    def path(self, role: str) -> str:
        if self.files[0][0] == role:
            return self.files[0][1]
        for found, path in self.files:
            if found == role:
                return path
        raise KeyError(role)


@dataclass(frozen=True)
class Places:
    """Where rows are in a track: the first byte and the end of each or, in a track of blocks, of its block.

    `numbers` are the numbers of the rows in their blocks; None where rows have their own bytes.
    """

    firsts: UIntArray
    ends: UIntArray
    numbers: IntArray | None = None

    def __getitem__(self, chosen: slice) -> Places:
        numbers = None if self.numbers is None else self.numbers[chosen]
        return Places(self.firsts[chosen], self.ends[chosen], numbers)

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def ranges(self) -> Ranges:
        return Ranges(self.firsts.tolist(), self.ends.tolist())


@dataclass(frozen=True)
class Fetch:
    """Reads bytes of files; a file that has changed since it was indexed is refused."""

    files: Files
    stamps: Mapping[str, Stamp]

    def __call__(self, paths: Sequence[str], ranges: Ranges) -> Sequence[Buffer]:
        """The bytes of each range of each path, in the order given."""
        if not paths:
            return []
        if paths.count(paths[0]) == len(paths):
            return self.files.read(paths[0], self.stamps[paths[0]], ranges)
        by_path: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            by_path.setdefault(path, []).append(i)
        groups = list(by_path.items())

        def read(number: int) -> Sequence[Buffer]:
            path, wanted = groups[number]
            part = Ranges([ranges.firsts[i] for i in wanted], [ranges.ends[i] for i in wanted])
            return self.files.read(path, self.stamps[path], part)

        found: list[Buffer] = [b""] * len(paths)
        for wanted, parts in zip(by_path.values(), ask_together(self.files, list(by_path), read), strict=True):
            for i, data in zip(wanted, parts, strict=True):
                found[i] = data
        return found


class Choice(Struct, frozen=True):
    """A value of a sample that is one of several, drawn by the sample's own key when the sample is made."""

    options: Sequence[Any]


class Block(NamedTuple):
    """A block of a track: its file, its first byte and its end."""

    path: str
    first: int
    end: int


@dataclass(frozen=True)
class Rows:
    """Rows to read, of any number of shards: the shard of each, its number there, its place in each track.

    How `fetch` opens, joins or caches files is not visible to a format; without it rows have a location, but cannot be
    read.
    """

    shards: Sequence[Shard]
    numbers: IntArray
    places: Mapping[str, Places]
    fetch: Fetch | None = None

    def payloads(self, track: str) -> Sequence[Buffer]:
        """The bytes of each row in a track; in a track of blocks, of its block, which is read once."""
        if self.places[track].numbers is not None:
            blocks = self.blocks(track)
            found = self.read_blocks(blocks)
            return [found[block] for block in blocks]
        assert self.fetch is not None
        return self.fetch(self.paths(track), self.places[track].ranges)

    def extents(self, track: str, head_bytes: int) -> list[Extent]:
        """The bytes of each row in a track as extents with their heads read; small ones are read whole.

        All are where a request costs more than its bytes.
        """
        assert self.fetch is not None
        paths, (firsts, ends) = self.paths(track), self.places[track].ranges
        whole = self.requests_cost(track)
        until = [
            end if whole or end - first <= _WHOLE_BYTES else first + head_bytes
            for first, end in zip(firsts, ends, strict=True)
        ]
        heads = self.fetch(paths, Ranges(firsts, until))
        files = {path: File(self.fetch.files, path, self.fetch.stamps[path]) for path in set(paths)}
        found = zip(paths, firsts, ends, heads, strict=True)
        return [Extent(files[path], first, end, head) for path, first, end, head in found]

    def requests_cost(self, track: str) -> bool:
        """Whether reading any file of a track takes a network round trip."""
        assert self.fetch is not None
        return num_costly(self.fetch.files, set(self.paths(track))) > 0

    def blocks(self, track: str) -> list[Block]:
        """The block of each row."""
        return list(map(Block, self.paths(track), *self.places[track].ranges))

    def read_blocks(self, blocks: Iterable[Block]) -> dict[Block, Buffer]:
        """The bytes of blocks, each read once: for a reader that caches some and requests the others."""
        assert self.fetch is not None
        distinct = list(dict.fromkeys(blocks))
        paths, firsts, ends = [list(part) for part in zip(*distinct, strict=True)] if distinct else ([], [], [])
        return dict(zip(distinct, self.fetch(paths, Ranges(firsts, ends)), strict=True))

    def paths(self, track: str) -> list[str]:
        shards = self.shards
        if shards and shards[0] is shards[-1] and shards.count(shards[0]) == len(shards):
            return [shards[0].path(track)] * len(shards)
        return [shard.path(track) for shard in shards]

    def place(self, i: int) -> str:
        """Where a row is, human-readable."""
        shard = self.shards[i]
        found = (_described(shard.path(track), places, i) for track, places in self.places.items())
        return "; ".join(found) or f"{shard.name}, row {int(self.numbers[i]):,}"

    def files_of(self, i: int) -> list[dict[str, str | int]]:
        """Where a row is, machine-readable: its bytes in each file, or its number where it has none."""
        shard = self.shards[i]
        if not self.places:
            return [{"file": shard.name, "row": int(self.numbers[i])}]
        return [_plain(shard.path(track), places, i) for track, places in self.places.items()]


def _described(path: str, places: Places, i: int) -> str:
    where = f"{path}, byte {int(places.firsts[i]):,}"
    return where if places.numbers is None else f"{where}, row {int(places.numbers[i]):,} of the block"


def _plain(path: str, places: Places, i: int) -> dict[str, str | int]:
    first, end = int(places.firsts[i]), int(places.ends[i])
    found: dict[str, str | int] = {"file": path, "offset": first, "num_bytes": end - first}
    return found if places.numbers is None else found | {"row_in_block": int(places.numbers[i])}
