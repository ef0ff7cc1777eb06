"""JSON Lines of which one field is wanted: the text. The other fields may be named in `keep`, `columns` and `ids`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from playhead.errors import DataError
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.jsonl import ROW_ID, Jsonl
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.formats.text import TEXT
from playhead.formats.tokens import text_pieces
from playhead.recipe.values import Length, Source
from playhead.store import Files


class TextJsonlOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`field` holds the text; `meta.text` reaches inside an object."""

    field: str = TEXT


@register("text_jsonl", raw_members=False, default_id=ROW_ID, options=TextJsonlOptions)
class TextJsonl:
    """Files of JSON objects, one a line, that are samples of text. A length of `text` is one of the field."""

    section_bytes = Jsonl.section_bytes

    def __init__(self) -> None:
        self._rows = Jsonl()

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        return self._rows.discover(source, files)

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        return self._rows.scan(shard, _own_fields(spec), files, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:
        return self._rows.sections(shard, _own_fields(spec), files, limits)

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return self._rows.scan_section(shard, section, _own_fields(spec), files, limits)

    def open(self, source: Source, files: Files) -> RowReader:
        field = options_of(TextJsonlOptions, source.options).field
        return _TextJsonlReader(self._rows.open(replace(source, options={}), files), field)


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


def _own_fields(spec: Spec) -> Spec:
    """What a scan of the objects collects: `text` is what the sample calls it, not the object."""
    field = options_of(TextJsonlOptions, spec.options).field
    lengths = {"length": _renamed(spec.length, field), "output_length": _renamed(spec.output_length, field)}
    return replace(spec, options={}, **lengths)


def _renamed(length: Length | None, field: str) -> Length | None:
    if length is None or field == TEXT:
        return length
    if length.sum:
        return replace(length, sum=[_renamed(term, field) for term in length.sum])
    if length.template is not None:
        pieces = [(_escaped(literal), field if name == TEXT else name) for literal, name in text_pieces(length)]
        named = [text if name is None else f"{text}{{{name}}}" for text, name in pieces]
        return replace(length, template="".join(named))
    of_text = length.field == TEXT or (length.tokenizer is not None and length.field is None)
    return replace(length, field=field) if of_text else length


def _escaped(literal: str) -> str:
    return literal.replace("{", "{{").replace("}", "}}")
