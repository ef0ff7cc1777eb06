"""Plain text: a line is a sample, blank ones too. Lines end in LF or CR LF; the last one need not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from playhead.errors import DataError
from playhead.formats.collect import ROW_ID, Collector
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.lengths import MISSING
from playhead.formats.lines import EveryLine, line_start, num_newlines, read_every_line
from playhead.formats.registry import register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.schema import LENGTHS, Track
from playhead.formats.spec import Spec
from playhead.recipe.values import Length, Source
from playhead.store import Buffer, File, Files, list_files, open_file
from playhead.types import Array

TRACK, TEXT = "text", "text"
_OFFSETS = Track(TRACK).array("offsets")
_BY_BYTES = Spec(length=Length(unit="bytes"))


@register("text", extensions=(".txt",), default_id=ROW_ID, raw_members=False)
class Text:
    """Files of lines of UTF-8."""

    section_bytes = 64 << 20

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        return [Shard(((TRACK, path),)) for path in list_files(files, source.path)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        file = open_file(files, shard.name)
        return _scan(file, Section(0, file.size), spec, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:  # noqa: ARG002
        if spec.ids == ROW_ID:  # made from row numbers, which a section does not know
            return []
        size = open_file(files, shard.name).size
        firsts = range(0, size, self.section_bytes)
        return [Section(first, min(first + self.section_bytes, size)) for first in firsts]

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return _scan(open_file(files, shard.name), section, spec, limits)

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _TextReader()


class _TextReader:
    has_media = False

    def read(self, rows: Rows) -> Iterable[Sample]:
        return [{TEXT: text} for text in texts_of(rows, TRACK)]


@dataclass(frozen=True)
class LineRow:
    """A row of one or several lines for a Collector: the bytes of each by its name in the sample."""

    lines: Mapping[str, bytes]

    def get(self, field: str) -> Any:
        return text_of(self.lines[field]) if field in self.lines else MISSING

    def size(self, field: str | None) -> int:
        if field is None:
            return sum(map(len, self.lines.values()))
        if field not in self.lines:
            raise DataError(f'unknown field "{field}"', found=f"fields: {', '.join(self.lines)}")
        return len(self.lines[field])

    def sample(self) -> Sample:
        return {name: text_of(raw) for name, raw in self.lines.items()}


def text_of(raw: bytes) -> str:
    """A line as text; one that is not UTF-8 is refused."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            "not UTF-8",
            found=f"byte {error.start:,} of the line is {raw[error.start]:#04x}: {raw[:40]!r}",
            expected="text in UTF-8",
            fix="convert the file, for example with `iconv -f latin1 -t utf-8`",
        ) from error


def texts_of(rows: Rows, track: str) -> list[str]:
    """The lines of rows in a track, without line endings. Every line is a row, so row and line numbers agree."""
    found = [_without_end(raw) for raw in rows.payloads(track)]
    try:
        return [raw.decode() for raw in found]
    except UnicodeDecodeError:
        for i, raw in enumerate(found):
            try:
                text_of(raw)
            except DataError as error:
                error.at(f"{rows.shards[i].path(track)}, line {int(rows.numbers[i]) + 1:,}")
                raise
        raise


def _without_end(raw: Buffer) -> bytes:
    return bytes(raw).removesuffix(b"\n").removesuffix(b"\r")


def _scan(file: File, section: Section, spec: Spec, limits: ScanLimits) -> Iterator[Chunk]:
    """The rows that begin in a section of a file; the last section has the sentinel, the size of the file."""
    first, end = line_start(file, section.first), line_start(file, section.end)
    collector = Collector(spec, file.path)
    for lines in read_every_line(file, limits, first, end):
        offsets = (lines.starts + lines.base).astype(np.uint64)
        yield Chunk(offsets.size, {_OFFSETS: offsets, **_columns(file, lines, spec, collector)})
    if section.end == file.size:
        yield Chunk(0, {_OFFSETS: np.array([end], dtype=np.uint64), **collector.take()})


def _columns(file: File, lines: EveryLine, spec: Spec, collector: Collector) -> dict[str, Array]:
    if not spec.reads_content:
        return {}
    if spec == _BY_BYTES:
        return {LENGTHS: (lines.ends - lines.starts).astype(np.uint32)}
    for start, raw in zip(lines.starts.tolist(), lines.contents(), strict=True):
        try:
            collector.add(LineRow({TEXT: raw}))
        except DataError as error:
            error.at(f"{file.path}, line {1 + num_newlines(file, lines.base + start):,}")
            raise
    return collector.take()
