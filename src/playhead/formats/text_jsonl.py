"""JSON Lines with one text field per sample. The other fields may be named in `keep`, `columns` and `ids`.

Samples always call it `text`: another field of that name cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError
from playhead.formats.collect import ROW_ID
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.jsonl import Jsonl, LineKind, LineRow
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.formats.text import TEXT
from playhead.recipe.values import Source
from playhead.store import Files


class TextJsonlOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`field` holds the text; `meta.text` reaches inside an object."""

    field: str = TEXT


@register("text_jsonl", raw_members=False, default_id=ROW_ID, options=TextJsonlOptions)
class TextJsonl:
    """Files of JSON objects, one a line, that are samples of text."""

    section_bytes = Jsonl.section_bytes

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        return Jsonl().discover(source, files)

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        return _lines(spec).scan(shard, replace(spec, options={}), files, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        return _lines(spec).sections(shard, replace(spec, options={}), files, limits)

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return _lines(spec).scan_section(shard, section, replace(spec, options={}), files, limits)

    def open(self, source: Source, files: Files) -> RowReader:
        field = options_of(TextJsonlOptions, source.options).field
        return _TextJsonlReader(Jsonl().open(replace(source, options={}), files), field)


def _lines(spec: Spec) -> Jsonl:
    """The objects, in which `text` is the field that holds it."""
    field = options_of(TextJsonlOptions, spec.options).field
    return Jsonl() if field == TEXT else Jsonl(LineKind(partial(_TextRow, field), partial(_place, field)))


def _place(wanted: str, field: str) -> str | None:
    """Where a field is in an object; None for the text field under its own name, which would be a duplicate."""
    return None if field == wanted else wanted if field == TEXT else field


@dataclass(frozen=True)
class _TextRow:
    """One line as a row for a Collector."""

    wanted: str
    raw: bytes
    value: Sample

    def get(self, field: str) -> Any:
        return self._line.get(self.wanted if field == TEXT else field)

    def size(self, field: str | None) -> int:
        return self._line.size(self.wanted if field == TEXT else field)

    def sample(self) -> Sample:
        return self.value

    @property
    def _line(self) -> LineRow:
        return LineRow(self.raw, self.value)


class _TextJsonlReader:
    has_media = False

    def __init__(self, rows: RowReader, field: str) -> None:
        self._rows, self._field = rows, field
        self._parts = field.split(".")

    def read(self, rows: Rows) -> Iterable[Sample]:
        return [{TEXT: self._text(rows, i, sample)} for i, sample in enumerate(self._rows.read(rows))]

    def _text(self, rows: Rows, i: int, sample: Sample) -> str:
        value: Any = sample
        for part in self._parts:
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, str):
            raise DataError(
                f'{rows.place(i)}: has no text in field "{self._field}"',
                found=f"fields: {', '.join(sample) or 'none'}" if value is None else repr(value)[:80],
                fix="name the field that holds it with `options: {field: ...}`",
            )
        return value
