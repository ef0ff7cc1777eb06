"""Conversations as `messages` in the style of OpenAI, from JSON Lines, a JSON array, Parquet or Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import ROW_ID, Collector, file_and_row, own_id
from playhead.formats.contract import Chunk, Format, RowReader, ScanLimits, Section
from playhead.formats.conversation import CONVERSATION, naming
from playhead.formats.conversation_lines import TRACK as LINES
from playhead.formats.conversation_lines import ConversationLines, file_media, one_folder
from playhead.formats.jsonl import row_object
from playhead.formats.message_parts import MessagesOptions, parse_columns, parse_messages
from playhead.formats.nemo import is_skipped, spans
from playhead.formats.registry import format_named, options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.saved_datasets import is_saved
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import Files, compression_of, list_files, open_file

ARROW, PARQUET = "arrow", "parquet"
_COLUMNS = {".parquet": PARQUET, ".arrow": ARROW}
_ROWS_AT_ONCE = 1 << 12


@register(
    "messages",
    default_id=ROW_ID,
    raw_members=False,
    options=MessagesOptions,
    path_options=("data_folder",),
    conversations=True,
)
class Messages:
    """Files of lines, of arrays, or of columns, by their names."""

    decodes_blocks = False

    def __init__(self) -> None:
        self._lines = ConversationLines(parse_messages, MessagesOptions)
        self.section_bytes = self._lines.section_bytes

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        kinds = {_kind(path, files) for path in source.path}
        if len(kinds) > 1:
            raise RecipeError(
                f'source "{source.name}": its files are of several formats',
                found=", ".join(sorted(kinds)),
                fix="make a source of each",
            )
        if (kind := kinds.pop()) == LINES:
            return [Shard(((LINES, path),)) for path in list_files(files, source.path)]
        return format_named(kind).discover(replace(source, options={}), files)

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        role, _ = shard.files[0]
        if role != LINES:
            inner: Format = format_named(PARQUET if role == PARQUET else ARROW)
            return inner.scan(shard, replace(spec, options={}), files, limits)
        if _is_array(shard.name, files):
            return _scan_array(shard, spec, files, limits)
        return self._lines.scan(shard, spec, files, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        if shard.files[0][0] != LINES or _is_array(shard.name, files):
            return []
        return self._lines.sections(shard, spec, files, limits)

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return self._lines.scan_section(shard, section, spec, files, limits)

    def open(self, source: Source, files: Files) -> RowReader:
        if (kind := _kind(source.path[0], files)) == LINES:
            return self._lines.open(source, files)
        rows = format_named(kind).open(replace(source, options={}), files)
        return _ColumnReader(rows, source)


class _ColumnReader:
    """Reads conversations of rows of columns."""

    has_media = True

    def __init__(self, rows: RowReader, source: Source) -> None:
        self._rows, self._tags = rows, source.tags
        self._options = options_of(MessagesOptions, source.options)
        self._folder = one_folder(self._options.data_folder, source, "data_folder")

    def read(self, rows: Rows) -> Iterable[Sample]:
        samples = []
        for i, value in enumerate(self._rows.read(rows)):
            row_id = own_id(value) or file_and_row(rows.shards[i].name, int(rows.numbers[i]))
            named = file_media(rows.shards[i].name, self._folder)
            try:
                with naming(row_id):
                    found = parse_columns(value, row_id, self._tags, named, self._options)
            except DataError as error:
                error.at(rows.place(i))
                raise
            samples.append({"id": row_id, CONVERSATION: found})
        return samples


def _kind(path: str, files: Files) -> str:
    """The format that reads a file, by the ending of its name; a directory of a saved dataset has none."""
    name = path.removesuffix(compression_of(path) or "")
    if "." not in name.rpartition("/")[2] and is_saved(path, files):
        return ARROW
    return next((kind for ending, kind in _COLUMNS.items() if name.endswith(ending)), LINES)


def _is_array(path: str, files: Files) -> bool:
    """Whether a file is one JSON array: it begins with a bracket."""
    return open_file(files, path).read(0, 64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _scan_array(shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
    """The objects of an array, which is read whole."""
    file = open_file(files, shard.name)
    data = b"".join(file.pieces(limits.chunk_bytes))
    kind = ConversationLines(parse_messages, MessagesOptions).kind(spec)
    collector, places, num_skipped = Collector(spec, file.path), list[tuple[int, int]](), 0
    for number, (first, end) in enumerate(_elements(data, file.path)):
        raw, place = data[first:end], f"{file.path}, element {number:,}, byte {first:,}"
        try:
            row = kind.row(raw, row_object(raw, "replace"))
            if is_skipped(row.sample()):
                num_skipped += 1
                continue
            collector.add(row, place)
        except DataError as error:
            error.at(place)
            raise
        places.append((first, end))
        if len(places) == _ROWS_AT_ONCE:
            yield _chunk(collector, places, 0)
            places = []
    yield _chunk(collector, places, num_skipped)


def _chunk(collector: Collector, places: list[tuple[int, int]], num_skipped: int) -> Chunk:
    firsts, ends = np.array(places, np.int64).reshape(-1, 2).T
    return Chunk(len(places), {**spans(LINES, firsts, ends), **collector.take()}, num_skipped)


def _elements(data: bytes, path: str) -> Iterator[tuple[int, int]]:
    """The first byte and the end of each element of an array."""
    try:
        elements = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a JSON array", found=f"{error}; {len(data):,} bytes", fix="write the file again"
        ) from None
    position = data.index(b"[") + 1
    for element in elements:
        raw = bytes(element)
        while data[position : position + 1] in (b" ", b"\t", b"\r", b"\n", b","):
            position += 1
        yield position, position + len(raw)
        position += len(raw)
