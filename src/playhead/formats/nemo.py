"""NeMo manifests: one JSON object per line that names audio, or a segment. Rows with `_skipme` are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import ROW_ID, own_id
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.jsonl import LineKind, read_objects, row_object, scan_lines
from playhead.formats.lines import Lines, line_place, read_every_line
from playhead.formats.media import Media
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Choice, Rows, Sample, Shard
from playhead.formats.schema import Track
from playhead.formats.sidecar_offsets import line_sidecars
from playhead.formats.spec import Spec
from playhead.recipe.values import Length, Source
from playhead.store import File, Files, list_files, open_file
from playhead.types import Array, BoolArray, IntArray, UIntArray

TRACK = "manifest"
AUDIO = "audio"
DURATION = Length(field="duration", audio=AUDIO, unit="seconds")

SKIP = "_skipme"
_EXTRA = "extra:"  # the files of lines, by the name of their field
_SECTION_BYTES = 64 << 20


class ExtraField(Struct, frozen=True, forbid_unknown_fields=True):
    """A field whose texts are lines of a file: the next line for each row, or a line drawn for it."""

    name: str
    path: str
    type: Literal["text_iter", "text_sample"] = "text_iter"


class NemoOptions(Struct, frozen=True, forbid_unknown_fields=True):
    extra_fields: list[ExtraField] = field(default_factory=list)


def _row_id(row: Sample, _path: str, _number: int) -> str:
    """A row's own id, or its audio path and, for a segment, its offset."""
    path, offset = row.get("audio_filepath"), row.get("offset")
    return own_id(row) or (f"{path}@{offset}" if offset else str(path))


def is_skipped(row: Mapping[str, Any]) -> bool:
    custom = row.get("custom")
    return bool(row.get(SKIP) or (isinstance(custom, dict) and custom.get(SKIP)))


def kept_rows(file: File, lines: Lines) -> BoolArray:
    """Which rows have no `_skipme`, or one that is false; any other value is a reason to leave the row out.

    It may be in the row, or in its `custom` fields.
    """
    kept = np.ones(lines.starts.size, np.bool_)
    if SKIP.encode() not in lines.data:
        return kept
    for i, (raw, position) in enumerate(lines.rows()):
        if SKIP.encode() in raw:
            try:
                kept[i] = not is_skipped(row_object(raw, "replace"))
            except DataError as error:
                error.at(line_place(file, position))
                raise
    return kept


MANIFEST_LINES = LineKind(default_id=_row_id, kept=kept_rows)


@register(
    "nemo", raw_members=False, default_id=ROW_ID, options=NemoOptions, default_length=DURATION, default_sequence=AUDIO
)
class Nemo:
    """Manifests whose rows name audio files."""

    section_bytes = _SECTION_BYTES

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        manifests = list_files(files, source.path)
        extra = [each for each in options_of(NemoOptions, source.options).extra_fields if each.type == "text_iter"]
        if extra and len(manifests) > 1:
            raise RecipeError(
                f'source "{source.name}": `text_iter` supports only one manifest',
                found=f"{len(manifests)} manifests",
                fix="join the manifests, or make a source of each, with its own file of lines",
            )
        return [
            Shard(((TRACK, path), *((f"{_EXTRA}{each.name}", _beside(path, each.path)) for each in extra)))
            for path in manifests
        ]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        _check_counted(spec)
        file = open_file(files, shard.name)
        chunks = _scan(file, Section(0, file.size), spec, limits)
        extra = [(role, open_file(files, path)) for role, path in shard.files[1:]]
        return _with_lines(chunks, extra, limits) if extra else chunks

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:  # noqa: ARG002
        if len(shard.files) > 1:
            return []
        size = open_file(files, shard.name).size
        return [Section(at, min(at + _SECTION_BYTES, size)) for at in range(0, size, _SECTION_BYTES)]

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        return _scan(open_file(files, shard.name), section, spec, limits)

    def open(self, source: Source, files: Files) -> RowReader:
        return _NemoReader(source, files)

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        return line_sidecars([shard.name], files, limits)

    def other_files(self, source: Source) -> Sequence[str]:
        return list(_files_to_draw_from(source).values())


def _check_counted(spec: Spec) -> None:
    """Refuse texts of other files in conversations whose tokens are counted: a scan sees the manifest alone."""
    extra = {each.name for each in options_of(NemoOptions, spec.options).extra_fields}
    used = extra.intersection([] if spec.chat is None else spec.chat.fields)
    if used:
        raise RecipeError(
            f'options.extra_fields: the tokens of "{used.pop()}" cannot be counted, as it is not in the manifest',
            fix="write the texts into the manifest, or give one as a tag: `tags: {context: ...}`",
        )


def _scan(file: File, section: Section, spec: Spec, limits: ScanLimits) -> Iterator[Chunk]:
    for lines, columns in scan_lines(file, section, spec, limits, MANIFEST_LINES):
        yield Chunk(lines.starts.size, {**spans(TRACK, *lines.places), **columns}, lines.num_left_out)


def spans(track: str, firsts: IntArray, ends: IntArray) -> dict[str, Array]:
    where = Track(track, "spans")
    return {where.array("firsts"): firsts.astype(np.uint64), where.array("ends"): ends.astype(np.uint64)}


def _with_lines(chunks: Iterator[Chunk], extra: list[tuple[str, File]], limits: ScanLimits) -> Iterator[Chunk]:
    """Each row with the next line of every `text_iter` file."""
    runs = [(role, file, _line_places(file, limits)) for role, file in extra]
    for chunk in chunks:
        arrays = dict(chunk.arrays)
        for role, file, places in runs:
            found = [place for place, _ in zip(places, range(chunk.num_rows), strict=False)]
            if len(found) < chunk.num_rows:
                raise DataError(
                    f"{file.path}: has fewer lines than the manifest has rows",
                    found="no line is left",
                    expected="a line for each row without `_skipme`",
                    fix="add the lines that are missing",
                )
            firsts, ends = np.array(found, np.int64).reshape(-1, 2).T
            arrays |= spans(role, firsts, ends)
        yield Chunk(chunk.num_rows, arrays, chunk.num_skipped)


def _line_places(file: File, limits: ScanLimits) -> Iterator[tuple[int, int]]:
    """The first byte and the end of every line, blank ones too, without its line ending."""
    for lines in read_every_line(file, limits):
        yield from zip((lines.starts + lines.base).tolist(), (lines.ends + lines.base).tolist(), strict=True)


class _NemoReader:
    has_media = True

    def __init__(self, source: Source, files: Files) -> None:
        self._files = files
        self._extra = options_of(NemoOptions, source.options).extra_fields
        self._to_draw_from = _files_to_draw_from(source)
        self.has_choices = bool(self._to_draw_from)

    def read(self, rows: Rows) -> Iterable[Sample]:
        samples = read_objects(rows, TRACK)
        for i, sample in enumerate(samples):
            sample[AUDIO] = _named_audio(rows, i, sample)
        for each in self._extra:
            if each.name in self._to_draw_from:
                texts: Iterable[Any] = [self._choices[each.name]] * len(samples)
            else:
                texts = _texts(rows, f"{_EXTRA}{each.name}")
            for sample, text in zip(samples, texts, strict=True):
                sample[each.name] = text
        return samples

    @cached_property
    def _choices(self) -> dict[str, Choice]:
        """The lines of the files that texts are drawn from, read into memory."""
        found = {}
        for name, path in self._to_draw_from.items():
            file = open_file(self._files, path)
            raws = [raw for lines in read_every_line(file, ScanLimits()) for raw in lines.contents()]
            options = [_decoded(raw, path, i) for i, raw in enumerate(raws) if raw.strip()]
            if not options:
                raise DataError(f"{path}: has no lines to draw from", fix="add some, or remove the field")
            found[name] = Choice(options)
        return found


def _files_to_draw_from(source: Source) -> dict[str, str]:
    """The files of `text_sample`, by the names of their fields."""
    extra = options_of(NemoOptions, source.options).extra_fields
    return {each.name: _beside(source.path[0], each.path) for each in extra if each.type == "text_sample"}


def _texts(rows: Rows, track: str) -> list[str]:
    paths = rows.paths(track)
    return [_decoded(bytes(data), paths[i], None) for i, data in enumerate(rows.payloads(track))]


def _decoded(line: bytes, path: str, number: int | None) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        where = "" if number is None else f", line {number + 1:,}"
        raise DataError(f"{path}{where}: is not UTF-8", found=str(error)) from error


def _named_audio(rows: Rows, i: int, row: Mapping[str, Any]) -> Media:
    try:
        path = audio_path(row)
        offset, duration = segment_of(row)
    except DataError as error:
        error.at(rows.place(i))
        raise
    base = rows.shards[i].name.rpartition("/")[0]
    return Media("audio", path=path, offset=offset, duration=duration, base=base)


def audio_path(row: Mapping[str, Any]) -> str:
    path = row.get("audio_filepath")
    if not isinstance(path, str) or not path:
        raise DataError(
            'the row has no "audio_filepath"',
            found=f"fields: {', '.join(row)}",
            fix="correct the manifest, or use `format: jsonl` for rows without audio",
        )
    return path


def segment_of(row: Mapping[str, Any]) -> tuple[float, float | None]:
    """The offset and duration of a row."""
    found = []
    for name in ("offset", "duration"):
        value = row.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            raise DataError(f'"{name}" is not a valid time', found=repr(value)[:80], expected="seconds, 0 or more")
        found.append(value)
    return float(found[0] or 0), None if found[1] is None else float(found[1])


def _beside(manifest: str, path: str) -> str:
    """A path from a manifest or its recipe: a relative one begins at the manifest's directory."""
    if "://" in path or path.startswith("/"):
        return path
    folder = manifest.rpartition("/")[0]
    return f"{folder}/{path}" if folder else path
