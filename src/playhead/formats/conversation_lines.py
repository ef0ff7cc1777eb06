"""Conversations in files of JSON objects, one a line; their media are files, or members of tars by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, field

from playhead.errors import DataError, RecipeError
from playhead.formats.collect import ROW_ID, file_and_row, own_id
from playhead.formats.contract import Chunk, RowReader, ScanLimits, Section
from playhead.formats.conversation import CONVERSATION, Conversation, naming
from playhead.formats.jsonl import LineKind, LineRow, read_objects, row_object, scan_lines
from playhead.formats.lines import line_place
from playhead.formats.media import Media, MediaKind
from playhead.formats.nemo import SKIP, kept_rows, spans
from playhead.formats.nemo_tarred import TAR, paired, tar_members
from playhead.formats.registry import options_of
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.spec import Spec
from playhead.formats.tar import TarMember, TarReader
from playhead.formats.tar_rows import row_tars
from playhead.recipe.values import Source
from playhead.store import File, Files, is_url, list_files, open_file

TRACK = "conversations"
_HEAD_BYTES = 1 << 12
_SECTION_BYTES = 64 << 20
_NOWHERE = (0, 0)


class NamedMedia(Protocol):
    """Makes the medium that a row names."""

    def __call__(self, kind: MediaKind, path: str, offset: float = 0.0, duration: float | None = None) -> Media: ...


# A row as a conversation: the object of the row, its id, the tags of the source, its media, and the format's options.
Parse = Callable[[Sample, str, Mapping[str, Any], NamedMedia, Any], Conversation]


class LineOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`tar` are tars whose members the rows name, one for each file of rows; with `skip_missing`, rows that name a
    member which is not in its tar are left out. `data_folder` is where relative paths begin, if not beside the file.
    """

    tar: list[str] = field(default_factory=list)
    skip_missing: bool = False
    data_folder: list[str] = field(default_factory=list)


def unlocated(kind: MediaKind, path: str, offset: float = 0.0, duration: float | None = None) -> Media:
    """A medium as a scan sees it: only its name counts."""
    return Media(kind, path=path, offset=offset, duration=duration)


@dataclass(frozen=True)
class _Line:
    """A line as a row for a Collector."""

    parse: Parse
    options: Any
    raw: bytes
    value: Sample

    def get(self, name: str) -> Any:
        return LineRow(self.raw, self.value).get(name)

    def size(self, name: str | None) -> int:
        return LineRow(self.raw, self.value).size(name)

    def sample(self) -> Sample:
        return self.value

    def conversation(self, tags: Mapping[str, Any]) -> Conversation:
        row_id = own_id(self.value)
        with naming(row_id):
            return self.parse(self.value, row_id or "", tags, unlocated, self.options)


@dataclass(frozen=True)
class ConversationLines:
    """A format of conversations, one JSON object a line, that `parse` reads."""

    parse: Parse
    options: type[Any] = LineOptions
    section_bytes: int = _SECTION_BYTES

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        paths, options = list_files(files, source.path), options_of(self.options, source.options)
        tars = list_files(files, options.tar) if options.tar else []
        if not tars:
            return [Shard(((TRACK, path),)) for path in paths]
        pairs = [(paths[0], tars[0])] if len(paths) == len(tars) == 1 else paired(source, paths, tars)
        return [Shard(((TRACK, path), (TAR, tar))) for path, tar in pairs]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        file = open_file(files, shard.name)
        section = Section(0, file.size)
        if len(shard.files) == 1:
            return self.scan_section(shard, section, spec, files, limits)
        return self._scan_tarred(file, open_file(files, shard.path(TAR)), section, spec, limits)

    def sections(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Sequence[Section]:  # noqa: ARG002
        if spec.ids == ROW_ID or len(shard.files) > 1:
            return []
        size = open_file(files, shard.name).size
        return [Section(at, min(at + self.section_bytes, size)) for at in range(0, size, self.section_bytes)]

    def scan_section(
        self, shard: Shard, section: Section, spec: Spec, files: Files, limits: ScanLimits
    ) -> Iterator[Chunk]:
        for lines, columns in scan_lines(open_file(files, shard.name), section, spec, limits, self.kind(spec)):
            yield Chunk(lines.starts.size, {**spans(TRACK, *lines.places), **columns}, lines.num_left_out)

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _Reader(self.parse, options_of(self.options, source.options), source)

    def kind(self, spec: Spec) -> LineKind:
        return LineKind(partial(_Line, self.parse, options_of(self.options, spec.options)), kept=kept_rows)

    def _scan_tarred(self, file: File, tar: File, section: Section, spec: Spec, limits: ScanLimits) -> Iterator[Chunk]:
        """Rows and, in the tar, the bytes from the first to the last member that each names."""
        options = options_of(self.options, spec.options)
        members = tar_members(tar, limits)
        for lines, columns in scan_lines(file, section, spec, limits, self.kind(spec)):
            places = np.zeros((lines.starts.size, 2), np.int64)
            found = np.ones(lines.starts.size, np.bool_)
            for i, (raw, at) in enumerate(lines.rows()):
                try:
                    row = row_object(raw, "replace")
                    with naming(own_id(row)):
                        names = self._names(row, options)
                        missing = [name for name in names if name not in members]
                        if missing and not options.skip_missing:
                            raise _missing(missing[0], len(members), tar)
                except DataError as error:
                    error.at(line_place(file, at))
                    raise
                found[i] = not missing
                places[i] = _NOWHERE if missing else _span([members[name] for name in names])
            firsts, ends = lines.places
            kept = {**spans(TRACK, firsts[found], ends[found]), **spans(TAR, *places[found].T)}
            kept |= {name: array[found] for name, array in columns.items()}
            yield Chunk(int(found.sum()), kept, lines.num_left_out + int((~found).sum()))

    def _names(self, row: Sample, options: Any) -> list[str]:
        parsed = self.parse(row, own_id(row) or "", {}, unlocated, options)
        return [part.media.path or "" for part in parsed.media() if isinstance(part.media, Media)]


def _span(members: Sequence[TarMember]) -> tuple[int, int]:
    if not members:
        return _NOWHERE
    return min(member.first for member in members), max(member.data + member.size for member in members)


def _missing(name: str, num_members: int, tar: File) -> DataError:
    return DataError(
        f'its medium is not in the tar: "{name}"',
        found=f"{num_members:,} members in {tar.path}",
        fix="write the shard again, or leave such rows out with `options: {skip_missing: true}`",
    )


class _Reader:
    has_media = True

    def __init__(self, parse: Parse, options: Any, source: Source) -> None:
        self._parse, self._options, self._tags = parse, options, source.tags
        self._folder = one_folder(options.data_folder, source, "data_folder")

    def read(self, rows: Rows) -> Iterable[Sample]:
        tars = TAR in rows.places
        objects = read_objects(rows, TRACK)
        named = self._tar_media(rows) if tars else [file_media(shard.name, self._folder) for shard in rows.shards]
        samples = []
        for i, (value, media) in enumerate(zip(objects, named, strict=True)):
            row_id = own_id(value) or file_and_row(rows.shards[i].name, int(rows.numbers[i]))
            try:
                with naming(row_id):
                    found = self._parse(value, row_id, self._tags, media, self._options)
            except DataError as error:
                error.at(rows.place(i))
                raise
            samples.append({"id": row_id, CONVERSATION: found})
        return samples

    def _tar_media(self, rows: Rows) -> list[NamedMedia]:
        """Media in tars: of each row the headers between its first and its last member are read."""
        firsts, ends = rows.places[TAR].ranges
        heads = [min(first + _HEAD_BYTES, end) for first, end in zip(firsts, ends, strict=True)]
        found: list[NamedMedia] = []
        for i, row in enumerate(row_tars(rows, TAR, ends if rows.requests_cost(TAR) else heads)):
            members = (
                {member.name: member for member in TarReader(row, ahead=_HEAD_BYTES).members()} if row.size else {}
            )
            extents = {name: row.extent(member) for name, member in members.items()}
            found.append(partial(_member, extents, rows.shards[i].path(TAR)))
        return found


def _member(
    extents: Mapping[str, Any],
    tar: str,
    kind: MediaKind,
    path: str,
    offset: float = 0.0,
    duration: float | None = None,
) -> Media:
    if path not in extents:
        raise DataError(f'its medium is not in the tar: "{path}"', found=tar)
    return Media(kind, extents[path], f'{tar}, member "{path}"', offset, duration)


def file_media(manifest: str, folder: str | None) -> NamedMedia:
    """Media that the rows of a file name: relative paths begin in the folder, if one is given, or beside the file.

    Law: rows of a remote file name only what is in a local folder.
    """
    base = folder or manifest.rpartition("/")[0]

    def named(kind: MediaKind, path: str, offset: float = 0.0, duration: float | None = None) -> Media:
        if is_url(manifest) and not is_url(base) and (path.startswith("/") or ".." in path.split("/")):
            raise DataError(
                f"{path}: rows of a remote file may not name local paths outside the folder of their media",
                expected=f"paths inside {base}",
            )
        return Media(kind, path=path, offset=offset, duration=duration, base=base)

    return named


def one_folder(given: Sequence[str], source: Source, name: str) -> str | None:
    if len(given) > 1:
        raise RecipeError(
            f'source "{source.name}": options.{name} is one directory',
            found=", ".join(given),
            fix="make a source for each",
        )
    return given[0].rstrip("/") if given else None


def text_of(value: Any, what: str) -> str:
    """A text of a conversation."""
    if not isinstance(value, str):
        raise DataError(f"{what} is not a text", found=repr(value)[:80], expected="a text")
    return value


def list_of(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, dict) for item in value):
        raise DataError(f"{what} is not a list of objects", found=repr(value)[:80], expected="a list of objects")
    return list(value)


def own_tags(row: Mapping[str, Any]) -> dict[str, Any]:
    """The tags of a row: its `custom` fields."""
    custom = row.get("custom")
    return {name: value for name, value in custom.items() if name != SKIP} if isinstance(custom, dict) else {}
