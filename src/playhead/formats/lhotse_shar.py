"""Lhotse Shar: cuts in lines, and beside them a file for each field, whose rows are those of the cuts, in order.

A field is a tar, in which a row is two members (its data, then its manifest), or lines with a value each.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import Collector
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.jsonl import row_object, scan_lines
from playhead.formats.lhotse import named_root, place_of
from playhead.formats.lhotse_cuts import (
    AUDIO,
    BY_DURATION,
    CUTS,
    ID,
    Cut,
    ManifestPaths,
    RecordingManifest,
    custom_part,
    cut_part,
    cut_sample,
    decode_cut,
    held_media,
    named_media,
)
from playhead.formats.media import Media
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.schema import Track
from playhead.formats.shar_fields import LILCOM, NO_DATA, NUMPY, TAR, ScannedField, cut_ids, load_lilcom, pairs
from playhead.formats.sidecar_offsets import line_sidecars, tar_offsets
from playhead.formats.spec import Spec
from playhead.formats.tar import TarReader
from playhead.formats.tar_rows import RowTar, row_tars
from playhead.recipe.values import Source
from playhead.store import Buffer, Files, list_files, open_file
from playhead.types import Array, UIntArray

CUTS_ROLE, RECORDING = "cuts", "recording"
_OFFSETS = Track(CUTS_ROLE).array("offsets")
_ENDINGS = (TAR, ".jsonl", ".jsonl.gz", ".jsonl.zst")
_COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.zst")
_LARGE_ROW_BYTES = 1 << 16  # on average: smaller rows are faster to read whole than in parts
_HEAD_BYTES = 1 << 11  # the headers of a member, in PAX too, and that of audio in it
_TAIL_BYTES = 1 << 11  # most manifests, with their headers
_RECORDING = msgspec.json.Decoder(RecordingManifest)


class SharOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`fields` are the files of each field, in place of directories; `root` is that of `lhotse`."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    root: list[str] = field(default_factory=list)


@register(
    "lhotse_shar",
    default_id=ID,
    raw_members=False,
    options=SharOptions,
    default_length=BY_DURATION,
    default_sequence="audio",
    path_options=("fields", "root"),
)
class LhotseShar:
    """Directories that lhotse's SharWriter wrote, or the files of each field."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        named_root(source)
        fields = options_of(SharOptions, source.options).fields
        if bool(fields) == bool(source.path):
            raise RecipeError(
                f'source "{source.name}": has {"both" if fields else "neither"} `path` and `options: {{fields: ...}}`',
                expected="directories in `path`, or the files of each field in `fields`",
            )
        return _shards_by_field(source, fields, files) if fields else _shards_in_directories(source, files)

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        cuts = open_file(files, shard.name)
        fields = [ScannedField(role, open_file(files, path), cuts, limits) for role, path in shard.files[1:]]
        row = 0
        for lines, columns in scan_lines(cuts, Section(0, cuts.size), spec, limits, CUTS):
            ids = cut_ids(cuts, lines)
            arrays = {**columns, _OFFSETS: (lines.starts + lines.base).astype(np.uint64)}
            for each in fields:
                arrays |= each.take(ids, row)
            yield Chunk(len(ids), arrays)
            row += len(ids)
        last: dict[str, Array] = {**Collector(spec).take(), _OFFSETS: np.array([cuts.size], np.uint64)}
        for each in fields:
            last |= each.finish(row)
        yield Chunk(0, last)

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _SharReader(named_root(source))

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        paths = [path for _, path in shard.files]
        yield from line_sidecars([path for path in paths if not path.endswith(TAR)], files, limits)
        for path in paths:
            if path.endswith(TAR):
                tar = open_file(files, path)
                yield path, tar_offsets(tar, (pair.data.first for pair in pairs(TarReader(tar))))


def _shards_in_directories(source: Source, files: Files) -> list[Shard]:
    """A shard for each file of cuts, with the files whose names differ only in the field."""
    found: dict[str, dict[str, dict[str, str]]] = {}  # by directory, then by what follows the field, then by field
    for path in list_files(files, [f"{directory.rstrip('/')}/*" for directory in source.path]):
        directory, _, name = path.rpartition("/")
        if name.endswith(_COMPRESSED_TARS):
            raise _compressed(path)
        ending = next((ending for ending in _ENDINGS if name.endswith(ending)), None)
        if ending is None:
            continue
        role, _, middle = name.removesuffix(ending).partition(".")
        of_shard = found.setdefault(directory, {}).setdefault(middle, {})
        if role in of_shard:
            raise DataError(f"{path}: the shard has this field twice", found=of_shard[role], fix="remove one of them")
        of_shard[role] = path
    shards = [of_shard for of_directory in found.values() for _, of_shard in sorted(of_directory.items())]
    if not shards:
        raise DataError(
            f"{source.path[0]}: is not a Lhotse Shar directory",
            found="no file such as cuts.000000.jsonl.gz or recording.000000.tar",
            fix="name the directory that SharWriter wrote; cuts in a single manifest are `format: lhotse`",
        )
    roles = sorted({role for of_shard in shards for role in of_shard} | {CUTS_ROLE})
    for of_shard in shards:
        for role in roles:
            if role not in of_shard:
                raise DataError(
                    f'{next(iter(of_shard.values()))}: the shard has no field "{role}"',
                    found=", ".join(sorted(of_shard)),
                    expected=f"{', '.join(roles)}, as in other shards of the source",
                    fix="write the field for this shard too, or name the fields to read in `options: {fields: ...}`",
                )
    return [_shard(of_shard) for of_shard in shards]


def _shards_by_field(source: Source, fields: Mapping[str, list[str]], files: Files) -> list[Shard]:
    """Shards of files that are named: the first of each field, the second of each, and so on."""
    if CUTS_ROLE not in fields:
        raise RecipeError(
            f'source "{source.name}": `fields` does not name the cuts',
            found=", ".join(fields),
            fix="add `cuts: [...]`, the files of cuts",
        )
    found = {role: list_files(files, patterns) for role, patterns in fields.items()}
    for role, paths in found.items():
        for path in paths:
            if not path.endswith(_ENDINGS) or (role == CUTS_ROLE and path.endswith(TAR)):
                raise (
                    _compressed(path)
                    if path.endswith(_COMPRESSED_TARS)
                    else DataError(
                        f'{path}: is not a file of field "{role}"',
                        expected=f"a file that ends in {', '.join(_ENDINGS)}",
                    )
                )
        if len(paths) != len(found[CUTS_ROLE]):
            raise DataError(
                f'{paths[0]}: field "{role}" has a different number of shards than the cuts',
                found=f"{len(paths):,}",
                expected=f"{len(found[CUTS_ROLE]):,}, as there are from {found[CUTS_ROLE][0]} on",
            )
    return [_shard(dict(zip(found, paths, strict=True))) for paths in zip(*found.values(), strict=True)]


def _shard(of_shard: Mapping[str, str]) -> Shard:
    roles = [CUTS_ROLE, *sorted(of_shard.keys() - {CUTS_ROLE})]
    if AUDIO in roles and RECORDING in roles:
        raise DataError(
            f'{of_shard[AUDIO]}: a field "{AUDIO}" beside the field "{RECORDING}", which samples have under this name',
            fix="name the fields that are wanted in `options: {fields: ...}`",
        )
    return Shard(tuple((role, of_shard[role]) for role in roles))


def _compressed(path: str) -> DataError:
    return DataError(
        f"{path}: a compressed tar cannot be read in any order",
        expected="a tar that is not compressed; its members may be",
        fix=f"{'zstd -d' if path.endswith('.zst') else 'gunzip'} {path}",
    )


class _SharReader:
    def __init__(self, root: str | None) -> None:
        self._root = root

    def read(self, rows: Rows) -> Iterable[Sample]:
        return self._samples(rows, in_parts=False)

    def read_heads(self, rows: Rows) -> Iterable[Sample]:
        """The samples with audio as extents: of large rows in local files only the beginning and the end are read."""
        return self._samples(rows, in_parts=True)

    def _samples(self, rows: Rows, *, in_parts: bool) -> list[Sample]:
        lines = rows.payloads(CUTS_ROLE)
        fields = field_payloads(rows, in_parts=in_parts)
        samples = []
        for i, line in enumerate(lines):
            place = place_of(rows.shards[i].name, self._root)
            try:
                samples.append(_sample(line, {role: next(found) for role, found in fields.items()}, place, in_parts))
            except DataError as error:
                error.at(rows.place(i))
                raise
        return samples


def field_payloads(rows: Rows, *, in_parts: bool) -> dict[str, Iterator[RowTar | Buffer]]:
    """The rows of every field but the cuts: tars of two members, or lines."""
    return {role: _payloads(rows, role, in_parts) for role in rows.places if role != CUTS_ROLE}


def _payloads(rows: Rows, role: str, in_parts: bool) -> Iterator[RowTar | Buffer]:
    paths = rows.paths(role)
    if not paths[0].endswith(TAR):
        return iter(rows.payloads(role))
    firsts, ends = rows.places[role].ranges
    large = sum(ends) - sum(firsts) > _LARGE_ROW_BYTES * len(firsts)
    if not in_parts or not large or rows.requests_cost(role):
        return row_tars(rows, role, ends)
    heads = [min(first + _HEAD_BYTES, end) for first, end in zip(firsts, ends, strict=True)]
    return row_tars(rows, role, heads, _TAIL_BYTES)


def _sample(line: Buffer, fields: Mapping[str, RowTar | Buffer], place: ManifestPaths, in_parts: bool) -> Sample:
    cut = decode_cut(line)
    values = {
        role: _held(cut, role, row, in_parts) if isinstance(row, RowTar) else field_value(role, row)
        for role, row in fields.items()
    }
    audio: dict[str, Media | None] = {}
    if RECORDING in values:
        audio[AUDIO] = values.pop(RECORDING)
    elif cut.recording is not None and any(source.type != "shar" for source in cut.recording.sources):
        audio[AUDIO] = named_media(cut.recording, cut_part(cut), place)
    return cut_sample(cut, audio, place) | values


def field_value(role: str, line: Buffer) -> Any:
    """The value in a line of a field; None if the cut has none."""
    return row_object(bytes(line).rstrip(), "strict").get(role)


def _held(cut: Cut, role: str, row: RowTar, in_parts: bool) -> Any:
    """The contents of a tar row: audio, an array, or None if the cut has neither."""
    reader = TarReader(row, ahead=_HEAD_BYTES)
    pair = next(pairs(reader))
    data, extension = pair.data, pair.extension
    if extension == NO_DATA:
        return None
    if extension in (NUMPY, LILCOM):
        return _array(extension, data.name, row.read(data.data, data.size))
    name = f'member "{data.name}"'
    try:
        recording = _RECORDING.decode(reader.read(pair.manifest.data, pair.manifest.size))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f'the manifest "{pair.manifest.name}" is not that of a recording', found=str(error)) from None
    part = cut_part(cut) if role == RECORDING else custom_part(cut, role)
    content = row.extent(data) if in_parts else row.read(data.data, data.size)
    return held_media(recording, part, content, name)


def _array(extension: str, name: str, data: bytes) -> Any:
    lilcom = load_lilcom(f'member "{name}"') if extension == LILCOM else None
    try:
        return np.load(io.BytesIO(data), allow_pickle=False) if lilcom is None else lilcom.decompress(data)
    except Exception as error:  # numpy may raise many types of errors for broken bytes
        raise DataError(f'member "{name}" is not an array', found=f"{type(error).__name__}: {error}"[:200]) from error
