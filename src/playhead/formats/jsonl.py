"""JSON Lines: one object a line, in `.jsonl` or `.json`, compressed or not. Blank lines are not rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError, RecipeError
from playhead.formats import sidecar
from playhead.formats.collect import ROW_ID, Collector, file_and_row, own_id
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.fields import fast_decoder
from playhead.formats.lengths import read_field
from playhead.formats.lines import Lines, line_place, line_start, read_lines
from playhead.formats.media import Media, MediaKind
from playhead.formats.registry import options_of, register
from playhead.formats.row_lengths import Row
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.schema import IDS, Track
from playhead.formats.sidecar_offsets import line_sidecars
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.seeds import hash_text
from playhead.store import Buffer, File, Files, Ranges, list_files, open_file, requests_cost
from playhead.types import Array, BoolArray, UIntArray

TRACK = "jsonl"
_OFFSETS = Track(TRACK).array("offsets")
_DECODER = msgspec.json.Decoder(dict[str, Any])
_BLANK = b" \t\r\n"
_LONGEST_BLANK = 64  # bytes: a longer line in a store is not looked at for being blank, it would mean to read them all


class MediaFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a row that name a medium: its path and, for audio segments, their offset and
    duration.
    """

    path: str
    offset: str | None = None
    duration: str | None = None
    kind: MediaKind = "audio"


class _Named(Struct, frozen=True):
    """The values of those fields in a row."""

    path: str
    offset: float = 0.0
    duration: float | None = None


class JsonlOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`media` adds fields to a sample: each is fetched and decoded from what other fields of the row name."""

    media: dict[str, MediaFields] = msgspec.field(default_factory=dict)


def text_bytes(value: Any, field: str) -> int:
    """The bytes of the text in a field."""
    if not isinstance(value, str):
        raise DataError(f'field "{field}" has no size in bytes', found=repr(value)[:80])
    return len(value.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class LineRow:
    """One line as a row for a Collector."""

    raw: bytes
    value: Sample

    def get(self, field: str) -> Any:
        return read_field(self.value, field)

    def size(self, field: str | None) -> int:
        return len(self.raw) if field is None else text_bytes(self.get(field), field)

    def sample(self) -> Sample:
        return self.value


def _own_id_or_place(row: Sample, path: str, number: int) -> str:
    return own_id(row) or file_and_row(path, number)


@dataclass(frozen=True)
class LineKind:
    """How the JSON objects of a format are read.

    `row` makes the row that a Collector reads, and raises DataError for an object of another format; `place` and
    `required` do the same for the fast decoder. `default_id` makes the id of an object, given its file and its number
    there, which is right only where the file is scanned from its beginning. `kept` says which lines are rows.
    """

    row: Callable[[bytes, Sample], Row] = LineRow
    place: Callable[[str], str | None] = str
    required: Mapping[str, Any] = field(default_factory=dict)
    default_id: Callable[[Sample, str, int], str] = _own_id_or_place
    kept: Callable[[File, Lines], BoolArray] | None = None


_ANY_OBJECT = LineKind()


@register("jsonl", extensions=(".jsonl", ".json"), default_id=ROW_ID, raw_members=False, options=JsonlOptions)
class Jsonl:
    """Files of JSON objects, one a line."""

    section_bytes = 64 << 20

    def __init__(self, kind: LineKind = _ANY_OBJECT) -> None:
        self._kind = kind

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        return [Shard(((TRACK, path),)) for path in list_files(files, source.path)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        file = open_file(files, shard.name)
        known = None if spec.reads_content else sidecar.load(file, limits)
        if known is not None:
            return iter([_from_sidecar(file, known)])
        return _scan(file, Section(0, file.size), spec, limits, self._kind)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        file = open_file(files, shard.name)
        if spec.ids == ROW_ID:  # made from row numbers, which a section does not know
            return []
        if not spec.reads_content and sidecar.load(file, limits) is not None:
            return []
        firsts = range(0, file.size, self.section_bytes)
        return [Section(first, min(first + self.section_bytes, file.size)) for first in firsts]

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return _scan(open_file(files, shard.name), section, spec, limits, self._kind)

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        media = options_of(JsonlOptions, source.options).media
        for name, fields in media.items():
            if fields.kind != "audio" and (fields.offset or fields.duration):
                raise RecipeError(
                    f'source "{source.name}": options.media.{name}: an {fields.kind} has no segments',
                    fix="remove `offset` and `duration`",
                )
        return _JsonlReader(media)

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        return line_sidecars([shard.name], files, limits)


class _JsonlReader:
    def __init__(self, media: Mapping[str, MediaFields]) -> None:
        self._media = media
        self.has_media = bool(media)

    def read(self, rows: Rows) -> Iterable[Sample]:
        samples = read_objects(rows, TRACK)
        return [self._with_media(rows, i, sample) for i, sample in enumerate(samples)] if self._media else samples

    def _with_media(self, rows: Rows, i: int, sample: Sample) -> Sample:
        base = rows.shards[i].name.rpartition("/")[0]
        try:
            return sample | {name: _media(sample, fields, base) for name, fields in self._media.items()}
        except DataError as error:
            error.at(rows.place(i))
            raise


def _media(sample: Sample, fields: MediaFields, base: str) -> Media:
    """The medium that a row names; a null or missing segment means the whole file."""
    if sample.get(fields.path) is None:
        raise DataError(
            f'the row has no field "{fields.path}" that names its {fields.kind}',
            found=f"fields: {', '.join(sample) or 'none'}",
            fix="name another field in `options: {media: ...}`, or leave the row out with `keep` or `drop_rows`",
        )
    found = {"path": sample[fields.path]}
    for name, given in (("offset", fields.offset), ("duration", fields.duration)):
        if given is not None and sample.get(given) is not None:
            found[name] = sample[given]
    try:
        named = msgspec.convert(found, _Named)
        return Media(fields.kind, path=named.path, offset=named.offset, duration=named.duration, base=base)
    except msgspec.ValidationError as error:
        raise DataError(
            f'field "{fields.path}" does not name a medium',
            found=f"{error}: {', '.join(f'{name} {value!r}' for name, value in found.items())}"[:200],
            expected="a path or URL; offset and duration in seconds",
        ) from None


def read_objects(rows: Rows, track: str) -> list[Sample]:
    """The objects of rows; an error names the position of a broken one."""
    payloads = rows.payloads(track)
    try:
        return list(map(_DECODER.decode, payloads))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_placed_object(rows, i, data) for i, data in enumerate(payloads)]


def _placed_object(rows: Rows, i: int, data: Buffer) -> Sample:
    try:
        return row_object(bytes(data).rstrip(), "strict")
    except DataError as error:
        error.at(rows.place(i))
        raise


def _scan(file: File, section: Section, spec: Spec, limits: ScanLimits, kind: LineKind) -> Iterator[Chunk]:
    """The rows that begin in a section of a file; the last section has the sentinel, the size of the file."""
    for lines, arrays in scan_lines(file, section, spec, limits, kind):
        offsets = lines.places[0].astype(np.uint64)
        yield Chunk(offsets.size, {_OFFSETS: offsets, **arrays})
    if section.end == file.size:
        yield Chunk(0, {_OFFSETS: np.array([section.end], dtype=np.uint64), **Collector(spec).take()})


def scan_lines(
    file: File, section: Section, spec: Spec, limits: ScanLimits, kind: LineKind = _ANY_OBJECT
) -> Iterator[tuple[Lines, dict[str, Array]]]:
    """The lines that begin in a section, in chunks, and the fields of the spec for each that is not blank."""
    first, end = line_start(file, section.first), line_start(file, section.end)
    return collect_lines(file, read_lines(file, limits, first, end=end), spec, kind)


def collect_lines(
    file: File, runs: Iterable[Lines], spec: Spec, kind: LineKind = _ANY_OBJECT
) -> Iterator[tuple[Lines, dict[str, Array]]]:
    """Lines of a file, and the fields of the spec for each row."""
    by_default = spec.ids == ROW_ID
    spec = replace(spec, ids=None) if by_default else spec
    decode = fast_decoder(spec, kind.place, kind.required)
    collector = Collector(spec)
    number = 0
    for lines in runs:
        arrays = decode(lines) if decode else None
        rows = lines
        if kind.kept is not None:
            kept = kind.kept(file, lines)
            rows = lines.only(kept)
            arrays = None if arrays is None else {name: array[kept] for name, array in arrays.items()}
        arrays = _line_by_line(file, rows, collector, kind) if arrays is None else arrays
        yield rows, arrays | _default_ids(file, rows, kind, number) if by_default else arrays
        number += rows.starts.size


def _line_by_line(file: File, lines: Lines, collector: Collector, kind: LineKind = _ANY_OBJECT) -> dict[str, Array]:
    """The slow path, which reports the line that is wrong."""
    for raw, position in lines.rows():
        try:
            collector.add(kind.row(raw, row_object(raw, "replace")), partial(line_place, file, position))
        except DataError as error:
            error.at(line_place(file, position))
            raise
    return collector.take()


def _default_ids(file: File, lines: Lines, kind: LineKind, first_number: int) -> dict[str, Array]:
    """The ids of rows if the recipe names no id field; `first` is the number of the first row."""
    ids = []
    for number, (raw, position) in enumerate(lines.rows(), first_number):
        try:
            ids.append(hash_text(kind.default_id(row_object(raw, "replace"), file.path, number)))
        except DataError as error:
            error.at(line_place(file, position))
            raise
    return {IDS: np.array(ids, np.uint64)}


def row_object(raw: bytes, broken_text: str) -> Sample:
    """One line as an object. NaN and Infinity, which Python writes, are accepted; so is broken UTF-8 in a field that
    an index does not need, but it is never delivered (`broken_text` is then "strict").
    """
    try:
        value = _value(raw, broken_text)
    except RecursionError:
        raise DataError(
            "the row is nested too deeply",
            found=f"brackets within brackets, hundreds deep; the line starts with {raw[:40]!r}",
            fix="remove the line, or flatten its contents",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            "broken JSON",
            found=f"{error}; the line starts with {raw[:40]!r}",
            expected="one JSON object",
            fix="fix or remove the line, then run it again",
        ) from error
    if not isinstance(value, dict):
        raise DataError("not an object", found=repr(value)[:80], expected="one JSON object a line")
    return value


def _value(raw: bytes, broken_text: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        try:
            return json.loads(raw.decode("utf-8", broken_text))
        except ValueError:
            raise error from None


def _from_sidecar(file: File, starts: UIntArray) -> Chunk:
    """Rows from a sidecar, which counts blank lines too."""
    ends = np.append(starts[1:], np.uint64(file.size))
    looked_at = np.arange(starts.size)
    if requests_cost(file.files, file.path):
        looked_at = np.flatnonzero(ends - starts <= _LONGEST_BLANK)
    blank = np.isin(sidecar.bytes_at(file, starts[looked_at]), np.frombuffer(_BLANK, dtype=np.uint8))
    numbers = looked_at[blank]
    lines = file.files.read(file.path, file.stamp, Ranges(starts[numbers].tolist(), ends[numbers].tolist()))
    keep = np.ones(starts.size, dtype=np.bool_)
    keep[numbers] = [bool(bytes(line).strip(_BLANK)) for line in lines]
    offsets = starts[keep]
    return Chunk(offsets.size, {_OFFSETS: np.append(offsets, np.uint64(file.size))})
