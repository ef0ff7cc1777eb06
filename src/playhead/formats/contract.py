"""What a format is: how to find shards, scan one into rows, and open a reader of rows.

A *shard* is one file of a source, or several that align row by row (a manifest and its tar). A file in which rows are
found by their bytes has a *track* (see schema.py); a format may have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import Files
from playhead.types import Array, UIntArray


class Section(NamedTuple):
    """A part of a shard that is scanned on its own: some bytes of its first file."""

    first: int
    end: int


@dataclass(frozen=True)
class ScanLimits:
    """Limits of a scan. Law: they never change what the scan finds."""

    chunk_bytes: int = 1 << 19
    longest_row_bytes: int = 1 << 26
    indexes_root: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Some rows of a shard, in order: arrays by the names of the schema.

    Laws: over all chunks of a shard every array has one entry for each unit of its schema, so the offsets of the
    last chunk have one more, where the last row ends; a chunk has whole blocks. `num_skipped` counts items between
    the rows that belong to none of them. `types` are the types of the shard's columns by name, if its files have
    columns: `prepare` refuses a source whose shards do not agree on them (column_schema.py).
    """

    num_rows: int
    arrays: Mapping[str, Array] = field(default_factory=dict)
    num_skipped: int = 0
    types: Mapping[str, str] | None = None


class RowReader(Protocol):
    """Reads rows of a source. It may keep footers, blocks and handles for the life of a process.

    A reader whose samples hold no `Media` value sets `has_media = False`, which saves searching for them; it is checked
    after every read. One whose samples may hold a `Choice` sets `has_choices = True`. One that can leave bytes unread
    also has `read_heads`: the same samples, in which an `Extent` may stand for bytes.
    """

    def read(self, rows: Rows) -> Iterable[Sample]:
        """The samples in the requested order. A broken row raises DataError."""


class Format(Protocol):
    """A file format of samples.

    A format whose readers decode a whole block for a row sets `decodes_blocks = True`: `playhead plan` then warns about
    orders in which that happens for nearly every row.
    """

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        """The shards of a source, in a fixed order."""

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        """The rows of a shard in chunks of bounded memory. Law: row n of every track is the same sample."""

    def open(self, source: Source, files: Files) -> RowReader:
        """A reader of rows, for one process."""


@runtime_checkable
class Divisible(Protocol):
    """A format whose large shards, of more than `section_bytes`, are scanned in sections, by several workers."""

    section_bytes: int

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        """The sections of a shard in order; none if it is better scanned whole. They depend only on the shard."""

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        """Law: the chunks of all sections, one after another, are those of the whole shard."""


@runtime_checkable
class WithOtherFiles(Protocol):
    """A format whose samples depend on files beside those of its shards."""

    def other_files(self, source: Source) -> Sequence[str]:
        """The paths of those files: their contents are in the payload fingerprint."""


@runtime_checkable
class WithSidecars(Protocol):
    """A format whose files may carry an `.idx`."""

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        """The files, each with the pieces of its offsets, sentinel included."""
