"""Parquet: a row is a number in its row group, and a row group is read and decoded whole, in the columns asked for."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from playhead.errors import DataError
from playhead.formats.arrow_types import load_pyarrow
from playhead.formats.collect import ROW_ID
from playhead.formats.column_scan import check_spec, collect, scanned_columns
from playhead.formats.column_schema import (
    ColumnFeature,
    ColumnOptions,
    MediaMaker,
    chosen_columns,
    media_makers,
    types_of,
)
from playhead.formats.columns import (
    Column,
    Kept,
    as_data_error,
    as_samples,
    broken_as_data_errors,
    column_of,
    refusals,
)
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Block, Rows, Sample, Shard
from playhead.formats.schema import Track
from playhead.formats.spec import Spec
from playhead.recipe.values import Count, Source
from playhead.store import Buffer, File, Files, Ranges, list_files, open_file
from playhead.types import Array, IntArray

TRACK = "parquet"
_BLOCKS = Track(TRACK, "blocks")
_MAGIC = b"PAR1"
_ENDING_BYTES = 8  # the size of the footer, and the magic
_TAIL_BYTES = 1 << 16  # enough for most footers
_ROWS_AT_ONCE = 1 << 14
_MOST_FOOTERS = 64
_KEPT_BYTES = 256 << 20  # of row groups that may never be needed again
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}


class ParquetOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`columns` are the ones to read, all by default; `audio` are those that hold recordings, `image` images.

    `features` replace those of Hugging Face in the files. `max_group_bytes` is what a row group may take in
    memory, in the columns that are read.
    """

    columns: list[str] | None = None
    audio: list[str] = field(default_factory=list)
    image: list[str] = field(default_factory=list)
    features: dict[str, ColumnFeature] | None = None
    max_group_bytes: Count = 2 << 30

    @property
    def of_columns(self) -> ColumnOptions:
        return ColumnOptions(self.columns, self.audio, self.image, self.features)


@register("parquet", extensions=(".parquet",), default_id=ROW_ID, raw_members=False, options=ParquetOptions)
class Parquet:
    """Parquet files; row groups are blocks."""

    decodes_blocks = True

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        load_pyarrow()
        return [Shard(((TRACK, path),)) for path in list_files(files, source.path)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        footer, options = _Footer.read(open_file(files, shard.name)), options_of(ParquetOptions, spec.options)
        chosen = chosen_columns(shard.name, footer.schema, options.of_columns)
        check_spec(shard.name, spec)
        wanted = scanned_columns(spec, footer.schema.names, chosen)
        types = types_of(shard.name, footer.schema, dict.fromkeys([*chosen, *wanted]), options.of_columns)
        first_row = 0
        for number, (first, end, num_rows) in footer.blocks.items():
            check_size(footer, number, chosen, options.max_group_bytes)
            arrays = {
                _BLOCKS.array("block_firsts"): np.array([first], np.uint64),
                _BLOCKS.array("block_ends"): np.array([end], np.uint64),
                _BLOCKS.array("block_rows"): np.array([num_rows], np.uint64),
            }
            if spec.reads_content:
                arrays |= _collected(footer, number, num_rows, spec, wanted, first_row, limits)
            yield Chunk(num_rows, arrays, types=types)
            first_row += num_rows

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return ParquetReader(source)


def _collected(
    footer: _Footer, number: int, num_rows: int, spec: Spec, wanted: list[str], first_row: int, limits: ScanLimits
) -> dict[str, Array]:
    """The arrays that a scan collects from a row group, in chunks of rows."""
    path, done, parts = footer.file.path, 0, list[dict[str, Array]]()
    with broken_as_data_errors(path, f"row group {number:,}"):
        read = _Positioned(footer.file.size, footer.file.read)
        opened = footer.open(read, footer.repeated(number, wanted), buffer_size=limits.chunk_bytes)
        most = options_of(ParquetOptions, spec.options).max_group_bytes
        how = {"row_groups": [number], "columns": wanted, "use_threads": False}
        batches = opened.iter_batches(footer.rows_at_once(number, wanted, most), **how) if wanted else [None]
        for batch in batches:
            count = num_rows if batch is None else batch.num_rows
            columns = {} if batch is None else {name: batch.column(name) for name in wanted}
            parts.append(collect(spec, columns, range(first_row + done, first_row + done + count), path))
            done += count
    if done != num_rows:
        raise _other_rows(path, number, done, num_rows)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class ParquetReader:
    """Reads rows. It keeps footers and, of decoded row groups, at most as many as two groups of the shuffle have."""

    def __init__(self, source: Source) -> None:
        load_pyarrow()
        self._options = options_of(ParquetOptions, source.options)
        self.has_media = False
        self._footers: Kept[str, _Footer] = Kept(_MOST_FOOTERS)
        most = 2 * source.shuffle_group if source.shuffle != "none" else 2
        # In a global shuffle a cached row group is rarely needed again.
        self.kept: Kept[Block, list[_DecodedRows]] = Kept(most, _KEPT_BYTES if source.shuffle == "global" else None)

    def read(self, rows: Rows) -> Iterable[Sample]:
        numbers = rows.places[TRACK].numbers
        assert numbers is not None
        by_block: dict[Block, list[int]] = {}
        for i, block in enumerate(rows.blocks(TRACK)):
            by_block.setdefault(block, []).append(i)
        samples: list[Sample] = [{}] * len(numbers)
        # Cached row groups come first, so that none is evicted just before it is used.
        load = partial(self._load, rows)
        for block in sorted(by_block, key=lambda block: block not in self.kept):
            chosen = by_block[block]
            (pieces,) = self.kept.loaded([block], load)
            try:
                found = _rows_of(pieces, numbers[chosen])
            except refusals() as error:
                raise as_data_error(error, block.path, f"byte {block.first:,}") from error
            for i, sample in zip(chosen, found, strict=True):
                samples[i] = sample
        return samples

    def _load(self, rows: Rows, blocks: list[Block]) -> Iterator[tuple[list[_DecodedRows], int]]:
        for block in blocks:
            self.kept.make_room()
            pieces = self._decoded(block, rows)
            yield pieces, sum(piece.num_bytes for piece in pieces)

    def _decoded(self, block: Block, rows: Rows) -> list[_DecodedRows]:
        """A row group in memory, in pieces of which each column is one array."""
        footer, columns = self._footer(block.path, rows), self._options.of_columns
        number, most = footer.number_of(block), self._options.max_group_bytes
        chosen = chosen_columns(block.path, footer.schema, columns)
        assert rows.fetch is not None
        media = media_makers(block.path, footer.schema, columns)
        self.has_media = self.has_media or bool(media)
        check_size(footer, number, chosen, most)
        ranges = footer.column_ranges(number, chosen)
        fetched = rows.fetch([block.path] * len(ranges.firsts), ranges)
        with broken_as_data_errors(block.path, f"row group {number:,}"):
            read = _Positioned(footer.file.size, _Fetched(footer.file, ranges, fetched).read)
            pieces, first = [], 0
            for batch in footer.batches(number, chosen, read, most):
                values = [column_of(batch.column(name)) for name in chosen]
                pieces.append(_DecodedRows(first, first + batch.num_rows, chosen, values, media, batch.nbytes))
                first += batch.num_rows
            if first != footer.blocks[number][2]:
                raise _other_rows(block.path, number, first, footer.blocks[number][2])
        return pieces

    def _footer(self, path: str, rows: Rows) -> _Footer:
        assert rows.fetch is not None
        file = File(rows.fetch.files, path, rows.fetch.stamps[path])
        return self._footers.loaded([path], lambda _: [(_Footer.read(file), 0)])[0]


def _rows_of(pieces: list[_DecodedRows], numbers: IntArray) -> list[Sample]:
    """Some rows of a row group."""
    if len(pieces) == 1:
        return pieces[0].rows(numbers)
    samples: list[Sample] = [{}] * len(numbers)
    for piece in pieces:
        inside = np.flatnonzero((numbers >= piece.first) & (numbers < piece.end))
        for i, sample in zip(inside.tolist(), piece.rows(numbers[inside] - piece.first), strict=True):
            samples[i] = sample
    return samples


@dataclass(frozen=True)
class _DecodedRows:
    """Some rows of a row group, decoded."""

    first: int
    end: int
    names: list[str]
    columns: list[Column]
    media: dict[str, MediaMaker]
    num_bytes: int

    def rows(self, numbers: IntArray) -> list[Sample]:
        return as_samples(self.names, [column(numbers) for column in self.columns], len(numbers), self.media)


@dataclass(frozen=True)
class _Footer:
    """The metadata of a file. `blocks` are the first byte, the end and the rows of its row groups by number."""

    file: File
    metadata: Any
    schema: Any
    blocks: dict[int, tuple[int, int, int]]

    @classmethod
    def read(cls, file: File) -> _Footer:
        import pyarrow.parquet as pq

        first, tail = _tail(file)
        with broken_as_data_errors(file.path, "its footer"):
            metadata = pq.read_metadata(_Positioned(file.size, _Fetched(file, *_one(first, tail)).read))
            schema = metadata.schema.to_arrow_schema()
        blocks = {}
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows:
                spans = [_span(group.column(i)) for i in range(group.num_columns)]
                begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
                if not 0 <= begin <= end <= file.size:
                    raise DataError(
                        f"{file.path}, row group {number:,}: is not inside the file",
                        found=f"bytes {begin:,} to {end:,}",
                        expected=f"bytes up to {file.size:,}",
                        fix="restore the file, or write it again",
                    )
                blocks[number] = begin, end, group.num_rows
        return cls(file, metadata, schema, blocks)

    def open(self, source: _Positioned, as_dictionaries: list[int], buffer_size: int = 0) -> Any:
        import pyarrow.parquet as pq

        how = {"memory_map": False, "pre_buffer": False, "page_checksum_verification": True}
        return pq.ParquetFile(
            source, metadata=self.metadata, read_dictionary=as_dictionaries, buffer_size=buffer_size, **how
        )

    def batches(self, number: int, names: list[str], source: _Positioned, most_bytes: int) -> Iterator[Any]:
        """A row group decoded: at once or, where its size is unknown, in chunks of limited size."""
        opened = self.open(source, self.repeated(number, names))
        if not self._growing(number, names):
            table = opened.read_row_group(number, columns=names, use_threads=False).select(names)
            yield from table.to_batches()
            return
        num_bytes = 0
        how = {"row_groups": [number], "columns": names, "use_threads": False}
        for batch in opened.iter_batches(self.rows_at_once(number, names, most_bytes), **how):
            num_bytes += batch.nbytes
            if num_bytes > most_bytes:
                raise _too_large(self.file.path, number, num_bytes, most_bytes)
            yield batch.select(names)

    def repeated(self, number: int, names: Sequence[str]) -> list[int]:
        """The columns of dictionary-encoded texts and bytes: they stay dictionary-encoded in memory."""
        growing = self._growing(number, names)
        return [i for i, column in self._leaves(number, names) if column.has_dictionary_page and i not in growing]

    def rows_at_once(self, number: int, names: Sequence[str], most_bytes: int) -> int:
        """How many rows may be decoded at a time. A delta-encoded text is no longer than its stored column."""
        growing = sum(column.total_uncompressed_size for column in self._growing(number, names).values())
        return max(1, min(_ROWS_AT_ONCE, most_bytes // growing)) if growing else _ROWS_AT_ONCE

    def _growing(self, number: int, names: Sequence[str]) -> dict[int, Any]:
        """The columns of delta-encoded texts, which may be far larger when decoded."""
        return {i: column for i, column in self._leaves(number, names) if "DELTA_BYTE_ARRAY" in column.encodings}

    def _leaves(self, number: int, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """The parts of some columns that hold texts or bytes."""
        return ((i, column) for i, column in self.parts(number, names) if column.physical_type == "BYTE_ARRAY")

    def parts(self, number: int, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """The stored chunks of some columns of a row group; a nested column has several."""
        group, wanted = self.metadata.row_group(number), {*names}
        for i in range(group.num_columns):
            column = group.column(i)
            path = column.path_in_schema
            if path in wanted or any(path.startswith(f"{name}.") for name in wanted):
                yield i, column

    def number_of(self, block: Block) -> int:
        for number, (first, end, _) in self.blocks.items():
            if (first, end) == (block.first, block.end):
                return number
        raise DataError(
            f"{block.path}, byte {block.first:,}: no row group starts here",
            fix="run `playhead prepare --force` on the recipe",
        )

    def column_ranges(self, number: int, chosen: Sequence[str]) -> Ranges:
        """The bytes of some columns of a row group."""
        spans = [_span(column) for _, column in self.parts(number, chosen)]
        return Ranges([first for first, _ in spans], [end for _, end in spans])


def check_size(footer: _Footer, number: int, names: Sequence[str], most_bytes: int) -> None:
    """Refuse a row group that takes too much memory, according to the footer."""
    num_bytes = 0
    for i, column in footer.parts(number, names):
        width = _VALUE_BYTES.get(column.physical_type) or footer.metadata.schema.column(i).length
        # Texts and bytes are kept as they are stored, with a number and an offset for each.
        num_bytes += column.num_values * width if width else column.total_uncompressed_size + 8 * column.num_values
    if num_bytes > most_bytes:
        raise _too_large(footer.file.path, number, num_bytes, most_bytes)


def _too_large(path: str, number: int, found: int, most: int) -> DataError:
    return DataError(
        f"{path}, row group {number:,}: is too large to decode",
        found=f"{found:,} bytes at least",
        expected=f"at most {most:,} in the columns that are read",
        fix="write smaller row groups, read fewer columns (`options: {columns: [...]}`), "
        "or raise `max_group_bytes` in the options of the source",
    )


def _span(column: Any) -> tuple[int, int]:
    """The bytes of a column chunk: it begins with its dictionary, where it has one."""
    first = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < first:
        first = int(column.dictionary_page_offset)
    return first, first + int(column.total_compressed_size)


def _tail(file: File) -> tuple[int, bytes]:
    """The end of a file with its whole footer, and where that begins."""
    tail = file.read(max(0, file.size - _TAIL_BYTES), _TAIL_BYTES)
    if len(tail) < _ENDING_BYTES or tail[-4:] != _MAGIC:
        encrypted = tail[-4:] == b"PARE"
        raise DataError(
            f"{file.path}: {'is encrypted' if encrypted else 'has no footer'}",
            found=f"{file.size:,} bytes, the last of them {tail[-4:]!r}",
            expected=f"a Parquet file, which ends with {_MAGIC!r}",
            fix="decrypt it first" if encrypted else "restore the file: it is truncated, or not a Parquet file",
        )
    size = int.from_bytes(tail[-8:-4], "little") + _ENDING_BYTES
    if size > file.size:
        raise DataError(
            f"{file.path}: its footer is truncated",
            found=f"{file.size:,} bytes",
            expected=f"a footer of {size:,} bytes",
            fix="restore the file, or write it again",
        )
    first = file.size - size
    return (file.size - len(tail), tail) if size <= len(tail) else (first, file.read(first, size))


def _other_rows(path: str, number: int, found: int, expected: int) -> DataError:
    return DataError(
        f"{path}, row group {number:,}: holds another number of rows than the footer says",
        found=f"{found:,}",
        expected=f"{expected:,}",
        fix="restore the file, or write it again",
    )


def _one(first: int, data: bytes) -> tuple[Ranges, Sequence[Buffer]]:
    return Ranges([first], [first + len(data)]), [data]


class _Fetched:
    """Bytes of a file that are in memory; others are read on demand."""

    def __init__(self, file: File, ranges: Ranges, data: Sequence[Buffer]) -> None:
        self._file, self._parts = file, list(zip(*ranges, data, strict=True))

    def read(self, offset: int, size: int) -> Buffer:
        for first, end, data in self._parts:
            if first <= offset and offset + size <= end:
                return memoryview(data)[offset - first : offset - first + size]
        return self._file.read(offset, size)


class _Positioned(io.RawIOBase):
    """A seekable file object for Arrow."""

    def __init__(self, size: int, read: Any) -> None:
        self._size, self._read, self._at = size, read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        found = self._read(self._at, self._size - self._at if size < 0 else min(size, self._size - self._at))
        self._at += len(found)
        return found
