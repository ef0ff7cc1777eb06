"""What a format is: four functions over shards.

A *shard* is one file of a source, or several that align row by row (a manifest and its tar). Each file that
rows are found in by byte offset is a *track*; a format may have no track at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import Spans
from playhead.types import Array, IntArray, LengthArray, UIntArray

Sample = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """The files of one shard by role, in a fixed order; the first names the shard in messages."""

    files: tuple[tuple[str, str], ...]

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
class ScanLimits:
    """How a scan may work. Law: it never changes what the scan finds."""

    chunk_bytes: int = 1 << 19
    longest_row_bytes: int = 1 << 26
    indexes_root: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Some rows of a shard, in order: what an index stores of them.

    `offsets` holds the first byte of each row in each track, `ends` the byte after the last row of the chunk;
    that of the last chunk becomes the shard's sentinel. `num_skipped` counts what lay between the rows and belongs to
    none of them.
    """

    num_rows: int
    offsets: Mapping[str, UIntArray] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    lengths: LengthArray | None = None
    outputs: LengthArray | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    ids: UIntArray | None = None
    num_skipped: int = 0


Fetch = Callable[[Sequence[str], Spans], list[bytes]]


@dataclass(frozen=True)
class Rows:
    """Rows to read, of any number of shards: the shard of each, its number there, its bytes in each track.

    `fetch` gets bytes of files; whether it opens, keeps, joins or caches anything is not the format's business.
    """

    shards: Sequence[Shard]
    numbers: IntArray
    spans: Mapping[str, Spans]
    fetch: Fetch

    def payloads(self, track: str) -> list[bytes]:
        """The bytes of each row in a track."""
        shards = self.shards
        if shards and shards[0] is shards[-1] and shards.count(shards[0]) == len(shards):
            return self.fetch([shards[0].path(track)] * len(shards), self.spans[track])
        return self.fetch([shard.path(track) for shard in shards], self.spans[track])

    def place(self, i: int) -> str:
        """Where a row is, for people."""
        shard = self.shards[i]
        spans = [f"{shard.path(track)}, byte {spans.firsts[i]:,}" for track, spans in self.spans.items()]
        return "; ".join(spans) or f"{shard.name}, row {int(self.numbers[i]):,}"


class Format(Protocol):
    """A kind of file that samples come in."""

    def discover(self, source: Source) -> Sequence[Shard]:
        """The shards of a source, in a fixed order."""

    def scan(self, shard: Shard, spec: Spec, limits: ScanLimits) -> Iterator[Chunk]:
        """The rows of a shard in chunks of bounded memory. Law: row n of every track is the same sample."""

    def read(self, rows: Rows, options: Mapping[str, Any]) -> Iterable[Sample]:
        """The samples, in the order asked for; `options` are the source's. A row that is broken raises DataError."""

    def sidecars(self, shard: Shard, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        """The files that may carry an `.idx`, each with the pieces of its offsets, sentinel included."""
