"""Arrow IPC streams and files: a row is a number in its record batch.

Streams are what Hugging Face keeps in its caches and writes by `save_to_disk`, whose directories are taken, too. Of an
uncompressed batch the bounds of rows are read and kept, and the values wanted by ranges; see batch_columns.py. Batches
are read whole where all that is in use at a time fits into memory, where rows come in order, and where they are
compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from playhead.errors import DataError
from playhead.formats.arrow_types import load_pyarrow
from playhead.formats.batch_columns import (
    Located,
    RangedColumn,
    head_ranges,
    joined_ranges,
    loaded,
    locate_columns,
    open_array,
    open_column,
)
from playhead.formats.collect import ROW_ID
from playhead.formats.column_scan import check_spec, collect, scanned_columns
from playhead.formats.column_schema import (
    ColumnFeature,
    ColumnOptions,
    MediaMaker,
    chosen_columns,
    common_types,
    media_makers,
    types_of,
)
from playhead.formats.columns import Kept, as_data_error, as_samples, broken_as_data_errors, column_of, refusals
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.ipc import (
    DICTIONARY,
    HEAD_BYTES,
    RECORD_BATCH,
    SCHEMA,
    Message,
    batch_header,
    is_compressed,
    read_message,
    read_messages,
)
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Block, Fetch, Rows, Sample, Shard
from playhead.formats.saved_datasets import saved_files
from playhead.formats.schema import Track
from playhead.formats.spec import Spec
from playhead.recipe.values import Count, Source
from playhead.store import Buffer, File, Files, Ranges, Stamp, open_file
from playhead.types import Array, IntArray

TRACK, INDICES = "arrow", "indices"
_BLOCKS = Track(TRACK, "blocks")
_KEPT_BYTES = 128 << 20
_MOST_KEPT = 1 << 16
_MOST_FILES = 1 << 10


class ArrowOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`columns` are the ones to read, all by default; `audio` are those that hold recordings, `image` images.

    `features` stand in place of those of Hugging Face in the files. `indices` is an Arrow file of row numbers: the rows
    of the source, in order, out of those of all its files. `allow_no_end` accepts a stream without the mark of its end.
    `max_batch_bytes` is what a compressed record batch may take in memory.
    """

    columns: list[str] | None = None
    audio: list[str] = field(default_factory=list)
    image: list[str] = field(default_factory=list)
    features: dict[str, ColumnFeature] | None = None
    indices: list[str] = field(default_factory=list)
    allow_no_end: bool = False
    max_batch_bytes: Count = 2 << 30

    @property
    def of_columns(self) -> ColumnOptions:
        return ColumnOptions(self.columns, self.audio, self.image, self.features)


@register(
    "arrow",
    extensions=(".arrow",),
    default_id=ROW_ID,
    raw_members=False,
    options=ArrowOptions,
    path_options=("indices",),
)
class Arrow:
    """IPC streams and files; record batches are blocks. With indices, all files are one shard, without a track."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        load_pyarrow()
        found = saved_files(source, files, options_of(ArrowOptions, source.options).indices)
        if found.indices is None:
            return [Shard(((TRACK, path),)) for path in found.data]
        data = tuple((f"{TRACK}{number or ''}", path) for number, path in enumerate(found.data))
        return [Shard(((INDICES, found.indices), *data))]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:  # noqa: ARG002
        check_spec(shard.name, spec)
        options = options_of(ArrowOptions, spec.options)
        if shard.files[0][0] == INDICES:
            yield _scan_indexed(shard, spec, options, files)
            return
        opened, first_row = _OpenFile(open_file(files, shard.name), options), 0
        types = opened.types(spec)
        for message in opened.batches():
            num_rows = batch_header(message, opened.place(message)).num_rows
            if not num_rows:
                continue
            arrays: dict[str, Array] = {
                _BLOCKS.array("block_firsts"): np.array([message.first], np.uint64),
                _BLOCKS.array("block_ends"): np.array([message.end], np.uint64),
                _BLOCKS.array("block_rows"): np.array([num_rows], np.uint64),
            }
            if spec.reads_content:
                arrays |= _collected(opened, message, spec, range(first_row, first_row + num_rows))
            yield Chunk(num_rows, arrays, types=types)
            first_row += num_rows

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return ArrowReader(source)


def _scan_indexed(shard: Shard, spec: Spec, options: ArrowOptions, files: Files) -> Chunk:
    """The rows that indices name, each read once, in the order of the indices."""
    indices = _read_indices(open_file(files, shard.path(INDICES)), options)
    wanted, places = np.unique(indices, return_inverse=True)
    parts, types, num_rows = list[dict[str, Array]](), dict[str, dict[str, str]](), 0
    for _, path in shard.files[1:]:
        opened, in_file = _OpenFile(open_file(files, path), options), 0
        types[path] = opened.types(spec)
        for message in opened.batches():
            end = num_rows + batch_header(message, opened.place(message)).num_rows
            chosen = wanted[(wanted >= num_rows) & (wanted < end)] - num_rows
            if spec.reads_content and len(chosen):
                parts.append(_collected(opened, message, spec, (chosen + in_file).tolist(), chosen))
            in_file, num_rows = in_file + end - num_rows, end
    if len(wanted) and wanted[-1] >= num_rows:
        raise _no_such_row(shard, int(wanted[-1]), num_rows)
    arrays = {name: np.concatenate([part[name] for part in parts])[places] for name in parts[0]} if parts else {}
    return Chunk(len(indices), arrays, types=common_types(types.items()))


def _no_such_row(shard: Shard, found: int, num_rows: int) -> DataError:
    return DataError(
        f"{shard.name}: references a row that is in none of the files",
        found=f"row {found:,}",
        expected=f"rows up to {num_rows - 1:,}",
        fix="rewrite the indices for these files",
    )


def _collected(
    opened: _OpenFile, message: Message, spec: Spec, numbers: Sequence[int], chosen: IntArray | None = None
) -> dict[str, Array]:
    """The arrays that a scan collects from a batch, or from chosen rows of one."""
    pa = load_pyarrow()
    wanted = scanned_columns(spec, opened.schema.names, opened.names)
    with opened.reading(message):
        columns = opened.arrays(message, wanted)
        if chosen is not None:
            columns = {name: array.take(pa.array(chosen)) for name, array in columns.items()}
        return collect(spec, columns, numbers, opened.file.path)


def _read_indices(file: File, options: ArrowOptions) -> IntArray:
    opened = _OpenFile(file, ArrowOptions(allow_no_end=options.allow_no_end))
    if not opened.names or not load_pyarrow().types.is_integer(opened.schema.field(0).type):
        raise DataError(f"{file.path}: holds no indices", found=f"columns: {', '.join(opened.names)}")
    name, parts = opened.names[0], [np.empty(0, np.int64)]
    for message in opened.batches():
        with opened.reading(message):
            found = opened.arrays(message, [name])[name]
            if found.null_count:
                raise DataError(f"{opened.place(message)}: a row number is missing")
            parts.append(found.to_numpy(zero_copy_only=False).astype(np.int64))
    indices = np.concatenate(parts)
    if (indices < 0).any():
        raise DataError(f"{file.path}: a row number is negative")
    return indices


class _OpenFile:
    """A file with its schema read."""

    def __init__(self, file: File, options: ArrowOptions) -> None:
        pa = load_pyarrow()
        self.file, self._options = file, options
        message = next(self._messages(), None)
        if message is None or message.kind != SCHEMA:
            raise DataError(f"{file.path}: does not begin with a schema", expected="an Arrow IPC stream or file")
        self._schema_bytes = file.read(message.first, message.end - message.first)
        with broken_as_data_errors(file.path, "its schema"):
            self.schema = pa.ipc.read_schema(pa.py_buffer(self._schema_bytes))
        self.names = chosen_columns(file.path, self.schema, options.of_columns)
        self.media = media_makers(file.path, self.schema, options.of_columns)

    def _messages(self) -> Iterator[Message]:
        return read_messages(self.file, allow_no_end=self._options.allow_no_end)

    def types(self, spec: Spec) -> dict[str, str]:
        """The columns that samples have, or that a scan reads."""
        names = dict.fromkeys([*self.names, *scanned_columns(spec, self.schema.names, self.names)])
        return types_of(self.file.path, self.schema, names, self._options.of_columns)

    def batches(self) -> Iterator[Message]:
        return (message for message in self._messages() if message.kind == RECORD_BATCH)

    def place(self, message: Message) -> str:
        return f"{self.file.path}, byte {message.first:,}"

    def reading(self, message: Message) -> AbstractContextManager[None]:
        return broken_as_data_errors(self.file.path, f"byte {message.first:,}")

    def located(self, message: Message) -> dict[str, Located] | None:
        """Where the columns of a batch are; None where it is read whole."""
        header = batch_header(message, self.place(message))
        if header.is_compressed or self._dictionaries:
            return None
        with self.reading(message):
            return locate_columns(message, header, self.schema)

    def whole(self, message: Message, data: Buffer) -> Any:
        """A batch whose bytes are all read. Law: every column has the size that it declares."""
        pa = load_pyarrow()
        self._check_size(message, data)
        if self._dictionaries:
            before = [part for end, part in self._dictionaries if end <= message.first or self._is_file]
            stream = pa.py_buffer(b"".join([self._schema_bytes, *before, data]))
            batch = pa.ipc.open_stream(stream).read_next_batch()
        else:
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
        batch.validate()
        return batch

    def _check_size(self, message: Message, data: Buffer) -> None:
        """Refuse a batch that takes too much memory: compressed buffers begin with their decompressed size."""
        if not is_compressed(message, self.place(message)):
            return
        header, most = batch_header(message, self.place(message)), self._options.max_batch_bytes
        firsts = header.buffers[header.buffers[:, 1] > 0, 0] + (message.body - message.first)
        sizes = [int.from_bytes(data[first : first + 8], "little", signed=True) for first in firsts.tolist()]
        if sum(map(abs, sizes)) > most:
            raise DataError(
                f"{self.place(message)}: is too large to decompress",
                found=f"{sum(map(abs, sizes)):,} bytes",
                expected=f"at most {most:,} in a record batch",
                fix="write smaller batches, or raise `max_batch_bytes` in the options of the source",
            )

    def arrays(self, message: Message, names: Sequence[str]) -> dict[str, Any]:
        """Some columns of a batch, reading as few bytes as possible."""
        located = self.located(message)
        if located is None:
            batch = self.whole(message, self.file.read(message.first, message.end - message.first))
            found = {name: batch.column(name) for name in names}
            for array in found.values():
                array.validate(full=True)
            return found
        ranges = [list(head_ranges(located[name], by_ranges=False)) for name in names]
        every = Ranges([first for part in ranges for first, _ in part], [end for part in ranges for _, end in part])
        data = iter(self.file.files.read(self.file.path, self.file.stamp, every))
        return {name: open_array(located[name], data) for name in names}

    @cached_property
    def _is_file(self) -> bool:
        return self.file.read(0, 6) == b"ARROW1"

    @cached_property
    def _dictionaries(self) -> list[tuple[int, bytes]]:
        """The dictionaries of the file, each with its end; messages are read only if the schema has dictionaries."""
        if not any(_has_dictionary(column.type) for column in self.schema):
            return []
        found = []
        for message in self._messages():
            if message.kind == DICTIONARY:
                data = self.file.read(message.first, message.end - message.first)
                self._check_size(message, data)
                found.append((message.end, data))
        return found


def _has_dictionary(kind: Any) -> bool:
    pa = load_pyarrow()
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    inside = any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_dictionary(kind)) or inside


class _Batch(NamedTuple):
    """A batch, or the head of one, in memory."""

    names: list[str]
    columns: list[RangedColumn]
    media: Mapping[str, MediaMaker]
    num_bytes: int


class ArrowReader:
    """Reads rows. It keeps schemas, and the batches and heads of batches used last, of a bounded number of bytes."""

    def __init__(self, source: Source) -> None:
        load_pyarrow()
        self._source = source
        self._options = options_of(ArrowOptions, source.options)
        self.has_media = False
        self._files: Kept[str, _OpenFile] = Kept(_MOST_FILES)
        self._row_tables: Kept[Shard, _RowTable] = Kept(_MOST_FILES)
        self._total_bytes: int | None = None
        # Compressed batches are decoded whole, whatever their size: those of two groups must not evict each other.
        by_block = source.shuffle == "shards" and source.shuffle_unit == "block"
        least = 2 * source.shuffle_group if by_block else 1
        self.kept: Kept[Block, _Batch] = Kept(_MOST_KEPT, _KEPT_BYTES, least)

    def read(self, rows: Rows) -> Iterable[Sample]:
        assert rows.fetch is not None
        blocks, numbers = self._places(rows)
        by_block: dict[Block, list[int]] = {}
        for i, block in enumerate(blocks):
            by_block.setdefault(block, []).append(i)
        parts = [
            _BatchRows(batch, chosen, numbers[chosen] if len(chosen) < len(numbers) else numbers)
            for batch, chosen in zip(self._batches([*by_block], rows.fetch), by_block.values(), strict=True)
        ]
        ranges = [joined_ranges(part.batch.columns, part.numbers) for part in parts]
        paths = [[block.path] * len(firsts) for block, (firsts, _) in zip(by_block, ranges, strict=True)]
        every = Ranges([*chain(*(firsts for firsts, _ in ranges))], [*chain(*(ends for _, ends in ranges))])
        data = iter(rows.fetch([*chain(*paths)], every))
        samples: list[Sample] = [{}] * len(numbers)
        for part, block in zip(parts, by_block, strict=True):
            try:
                found = part.samples(data)
            except refusals() as error:
                raise as_data_error(error, block.path, f"byte {block.first:,}") from error
            for i, sample in zip(part.chosen, found, strict=True):
                samples[i] = sample
        return samples

    def _places(self, rows: Rows) -> tuple[list[Block], IntArray]:
        """The batch of each row, and its number there."""
        if TRACK in rows.places:
            numbers = rows.places[TRACK].numbers
            assert numbers is not None
            return rows.blocks(TRACK), numbers
        fetch, blocks = rows.fetch, list[Block]()
        assert fetch is not None
        shards = dict.fromkeys(rows.shards)
        read = self._row_tables.loaded(
            shards, lambda new: [(_row_table(shard, fetch, self._options), 0) for shard in new]
        )
        tables = dict(zip(shards, read, strict=True))
        found = np.empty(len(rows.numbers), np.int64)
        for i, (shard, number) in enumerate(zip(rows.shards, rows.numbers.tolist(), strict=True)):
            block, found[i] = tables[shard].place(number)
            blocks.append(block)
        return blocks, found

    def _batches(self, blocks: list[Block], fetch: Fetch) -> list[_Batch]:
        """The batches. Those not cached are opened together in two requests, for their metadata and their bytes."""
        return self.kept.loaded(blocks, partial(self._load, fetch))

    def _load(self, fetch: Fetch, new: list[Block]) -> Iterator[tuple[_Batch, int]]:
        heads = Ranges([block.first for block in new], [min(block.end, block.first + HEAD_BYTES) for block in new])
        opened = [
            self._opening(block, head, fetch)
            for block, head in zip(new, fetch([block.path for block in new], heads), strict=True)
        ]
        firsts = [first for each in opened for first, _ in each.ranges]
        ends = [end for each in opened for _, end in each.ranges]
        paths = [each.block.path for each in opened for _ in each.ranges]
        data = iter(fetch(paths, Ranges(firsts, ends)))
        for each in opened:
            with broken_as_data_errors(each.block.path, f"byte {each.block.first:,}"):
                batch = each.open(data)
            yield batch, batch.num_bytes

    def _opening(self, block: Block, head: Buffer, fetch: Fetch) -> _Opening:
        (file,) = self._files.loaded([block.path], partial(self._open, fetch))
        message = read_message(file.file, block.first, bytes(head))
        if message is None or message.kind != RECORD_BATCH or message.end != block.end:
            raise DataError(
                f"{block.path}, byte {block.first:,}: no record batch starts here",
                fix="run `playhead prepare --force` on the recipe",
            )
        located = None if self._fits(block, fetch.stamps) else file.located(message)
        if located is None:
            return _Opening(block, file, message, None, [(block.first, block.end)])
        columns = [located[name] for name in file.names]
        ranges = [found for column in columns for found in head_ranges(column, by_ranges=True)]
        return _Opening(block, file, message, columns, ranges)

    def _open(self, fetch: Fetch, paths: list[str]) -> Iterator[tuple[_OpenFile, int]]:
        for path in paths:
            file = _OpenFile(File(fetch.files, path, fetch.stamps[path]), self._options)
            self.has_media = self.has_media or bool(file.media)
            yield file, 0

    def _fits(self, block: Block, stamps: Mapping[str, Stamp]) -> bool:
        """Whether all batches in use fit into the cache, so that a batch is still there when it is needed again."""
        size, source = block.end - block.first, self._source
        if source.shuffle == "global":
            size = self._total(stamps)
        elif source.shuffle == "shards":
            unit = size if source.shuffle_unit == "block" else self._total(stamps) // len(stamps)
            size = 2 * source.shuffle_group * unit
        return size <= _KEPT_BYTES

    def _total(self, stamps: Mapping[str, Stamp]) -> int:
        if self._total_bytes is None:
            self._total_bytes = sum(stamp.size for stamp in stamps.values())
        return self._total_bytes


@dataclass(frozen=True)
class _Opening:
    """A batch whose metadata are read: what remains to be read, and the ranges of its columns if not all of it."""

    block: Block
    file: _OpenFile
    message: Message
    columns: list[Located] | None
    ranges: list[tuple[int, int]]

    def open(self, data: Iterator[Buffer]) -> _Batch:
        names, media = self.file.names, self.file.media
        if self.columns is None:
            batch = self.file.whole(self.message, bytes(next(data)))
            return _Batch(names, [loaded(column_of(batch.column(name))) for name in names], media, batch.nbytes)
        num_bytes = sum(end - first for first, end in self.ranges)
        return _Batch(names, [open_column(column, data, by_ranges=True) for column in self.columns], media, num_bytes)


class _BatchRows(NamedTuple):
    """Some rows of one batch: their positions among the requested rows, and their numbers in the batch."""

    batch: _Batch
    chosen: list[int]
    numbers: IntArray

    def samples(self, data: Iterator[Buffer]) -> list[Sample]:
        values = [column.values(self.numbers, data) for column in self.batch.columns]
        return as_samples(self.batch.names, values, len(self.numbers), self.batch.media)


@dataclass(frozen=True)
class _RowTable:
    """Where the rows of a shard with indices are: 8 bytes a row, and its batches."""

    indices: IntArray
    blocks: list[Block]
    starts: IntArray

    def place(self, number: int) -> tuple[Block, int]:
        row = int(self.indices[number])
        block = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.blocks[block], row - int(self.starts[block])


def _row_table(shard: Shard, fetch: Fetch, options: ArrowOptions) -> _RowTable:
    blocks, starts, num_rows = list[Block](), list[int](), 0
    for _, path in shard.files[1:]:
        opened = _OpenFile(File(fetch.files, path, fetch.stamps[path]), options)
        for message in opened.batches():
            blocks.append(Block(path, message.first, message.end))
            starts.append(num_rows)
            num_rows += batch_header(message, opened.place(message)).num_rows
    path = shard.path(INDICES)
    indices = _read_indices(File(fetch.files, path, fetch.stamps[path]), options)
    if len(indices) and int(indices.max()) >= num_rows:
        raise _no_such_row(shard, int(indices.max()), num_rows)
    return _RowTable(indices, blocks, np.array(starts))
