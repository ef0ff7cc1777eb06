"""The arrays that an index has for every source, in one list: their names, types and what each has an entry for.

A scan fills them chunk by chunk; parts, merging, opening, checks and the estimate of bytes go by this list.
A *track* says where rows are in one file of a shard, in one of three ways:

    offsets   the first byte of every row, and one sentinel a shard: a row ends where the next begins
    spans     the first byte and the end of every row: in any order, several rows of one member
    blocks    the first byte, the end and the number of rows of every block; a row is a number in its block
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import quote

from msgspec import Struct

from playhead.formats.spec import Spec

TrackKind = Literal["offsets", "spans", "blocks"]
Per = Literal["row", "bound", "block"]

LENGTHS, OUTPUTS, IDS, KEYS = "lengths", "outputs", "ids", "keys"

_TRACK_ARRAYS: dict[TrackKind, dict[str, tuple[str, Per]]] = {
    "offsets": {"offsets": ("<u8", "bound")},
    "spans": {"firsts": ("<u8", "row"), "ends": ("<u8", "row")},
    "blocks": {"block_firsts": ("<u8", "block"), "block_ends": ("<u8", "block"), "block_rows": ("<u8", "block")},
}


class Track(Struct, frozen=True):
    """A file of each shard in which rows are found by their bytes. Its name is the file's role."""

    name: str
    kind: TrackKind = "offsets"

    def array(self, part: str) -> str:
        return f"tracks/{file_name(self.name)}/{part}"

    @property
    def last(self) -> str:
        """The array whose entries must not be beyond the end of the file."""
        return self.array({"offsets": "offsets", "spans": "ends", "blocks": "block_ends"}[self.kind])

    @property
    def arrays(self) -> dict[str, ArrayType]:
        return {self.array(part): ArrayType(*found) for part, found in _TRACK_ARRAYS[self.kind].items()}


class ArrayType(Struct, frozen=True):
    """The type of an array, and what it has an entry for: a row, a row and the end of each shard, or a block.

    An entry has `width` numbers.
    """

    dtype: str
    per: Per
    width: int = 1


def schema_of(spec: Spec, tracks: Iterable[Track]) -> dict[str, ArrayType]:
    """Every array that a scan fills, by its name."""
    arrays: dict[str, ArrayType] = {}
    for track in tracks:
        arrays |= track.arrays
    if spec.length is not None:
        arrays[LENGTHS] = ArrayType("<u4", "row")
    if spec.output_length is not None:
        arrays[OUTPUTS] = ArrayType("<u4", "row")
    arrays |= {column(name): ArrayType("<f4", "row") for name in spec.columns}
    arrays |= {column(match.column): ArrayType("|u1", "row") for match in spec.matches}
    if spec.ids is not None:
        arrays[IDS] = ArrayType("<u8", "row")
    return arrays


def index_schema(spec: Spec, tracks: Iterable[Track]) -> dict[str, ArrayType]:
    """Every array of an index: those of a scan, with ids as sorted pairs of their hash and their row."""
    arrays = schema_of(spec, tracks)
    if arrays.pop(IDS, None) is not None:
        arrays[KEYS] = ArrayType("<u8", "row", 2)
    return arrays


def column(name: str) -> str:
    return f"columns/{file_name(name)}"


def tracks_in(names: Iterable[str], roles: Iterable[str]) -> tuple[Track, ...]:
    """The tracks that arrays of these names belong to, in the order of the files of a shard."""
    given = set(names)
    found = [Track(role, kind) for role in roles for kind in _TRACK_ARRAYS]
    return tuple(track for track in found if given.issuperset(track.arrays))


def bytes_per_row(schema: Mapping[str, ArrayType]) -> int:
    """The bytes of the arrays for each row; arrays of blocks are not counted."""
    return sum(int(array.dtype[-1]) * array.width for array in schema.values() if array.per != "block")


def file_name(name: str) -> str:
    """A name as one part of a path; different names give different parts."""
    quoted = quote(name, safe=" ,=+@()")
    return quoted.replace(".", "%2E") if name.startswith(".") else quoted
