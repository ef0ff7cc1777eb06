"""WebDataset tars: members grouped into samples by key, the path up to the first dot of the base name."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from playhead.errors import DataError
from playhead.formats import wids
from playhead.formats.collect import Collector
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.lengths import MISSING
from playhead.formats.registry import options_of, register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.schema import Track
from playhead.formats.spec import Spec
from playhead.formats.tar import TarMember, TarReader
from playhead.formats.tar_hints import tar_hints
from playhead.formats.tar_rows import row_tars
from playhead.recipe.values import Source
from playhead.store import Files, list_files, open_file
from playhead.types import UIntArray

TRACK = "tar"
KEY = "__key__"
_OFFSETS = Track(TRACK).array("offsets")
_ROWS_AT_ONCE = 1 << 12
_LARGE_ROW_BYTES = 1 << 16  # on average: smaller rows are faster to read whole than in two steps
_LARGE_MEMBER_BYTES = 1 << 14
_HEAD_BYTES = 1 << 11  # the headers of a member, in PAX too, and that of an array in it


class WebDatasetOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`allow_no_end` accepts a tar without the blocks of zeros at its end."""

    allow_no_end: bool = False


@register("webdataset", extensions=(".tar", wids.NAME), default_id=KEY, options=WebDatasetOptions)
class WebDataset:
    """Uncompressed tars; the members of a sample follow one another."""

    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        named = wids.expand_lists(source.path, files)
        return [Shard(((TRACK, path),), named.get(path)) for path in list_files(files, list(named))]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:
        collector = Collector(spec)
        firsts: list[int] = []
        end = 0
        skipped: list[int] = []
        file = open_file(files, shard.name)
        allow_no_end = options_of(WebDatasetOptions, spec.options).allow_no_end
        reader = TarReader(file, needs_end=not allow_no_end, hints=tar_hints(file, limits))
        for group in all_groups(reader, skipped):
            if len(firsts) == _ROWS_AT_ONCE:
                yield _chunk(collector, firsts)
                firsts = []
            if spec.reads_content:
                try:
                    collector.add(_GroupRow(group, limits.longest_row_bytes), group.where)
                except DataError as error:
                    error.at(group.where)
                    raise
            firsts.append(group.first)
            end = group.end
        # The sentinel; a last member may lack its padding.
        last = _chunk(collector, [*firsts, min(end, file.size)])
        yield replace(last, num_rows=len(firsts), num_skipped=len(skipped))

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _WebDatasetReader()

    def sidecars(self, shard: Shard, files: Files, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:
        chunks = self.scan(shard, Spec(options={"allow_no_end": True}), files, limits)
        yield shard.name, (chunk.arrays[_OFFSETS] for chunk in chunks)


class _WebDatasetReader:
    has_media = False

    def read(self, rows: Rows) -> Iterable[Sample]:
        for row in row_tars(rows, TRACK, rows.places[TRACK].ranges.ends):
            for group in groups(TarReader(row)):
                yield group.sample()

    def read_heads(self, rows: Rows) -> Iterable[Sample]:
        """The samples with large members as extents: of large rows in local files only the beginning is read.

        Elsewhere a request costs more than its bytes, and rows are read whole.
        """
        firsts, ends = rows.places[TRACK].ranges
        if sum(ends) - sum(firsts) > _LARGE_ROW_BYTES * len(firsts) and not rows.requests_cost(TRACK):
            ends = [min(first + _HEAD_BYTES, end) for first, end in zip(firsts, ends, strict=True)]
        for row in row_tars(rows, TRACK, ends):
            for group in groups(TarReader(row, ahead=_HEAD_BYTES)):
                sample: Sample = {KEY: group.key}
                for extension, member in group.members.items():
                    large = member.size >= _LARGE_MEMBER_BYTES
                    sample[extension] = row.extent(member) if large else group.content(extension)
                yield sample


@dataclass(frozen=True)
class Group:
    """A sample: its members by extension, in order."""

    reader: TarReader
    key: str
    members: dict[str, TarMember]

    @property
    def first(self) -> int:
        return next(iter(self.members.values())).first

    @property
    def end(self) -> int:
        return max(member.end for member in self.members.values())

    @property
    def where(self) -> str:
        return f'{self.reader.file.path}, byte {self.first:,}, sample "{self.key}"'

    def content(self, extension: str) -> bytes:
        member = self.members[extension]
        return self.reader.read(member.data, member.size)

    def sample(self) -> Sample:
        return {KEY: self.key} | {extension: self.content(extension) for extension in self.members}


class _GroupRow:
    """A sample as a row for a Collector: a field is a member, or "<extension>.<path>" inside a JSON member."""

    def __init__(self, group: Group, longest: int) -> None:
        self._group = group
        self._longest = longest
        self._decoded: dict[str, Any] = {}

    def get(self, field: str) -> Any:
        if field == KEY:
            return self._group.key
        extension, inner = self._member(field)
        if extension is None:
            return MISSING
        if extension not in self._decoded:
            self._decoded[extension] = self._decode(extension)
        value = self._decoded[extension]
        for part in inner.split(".") if inner else ():
            if not isinstance(value, dict) or part not in value:
                return MISSING
            value = value[part]
        return value

    def text(self, field: str) -> Any:
        """A field as it will be in the sample: a member of text whole."""
        if field not in self._group.members or field.rpartition(".")[2] == "json":
            return self.get(field)
        self._check_size(self._group.members[field].size)
        try:
            return self._group.content(field).decode()
        except UnicodeDecodeError as error:
            raise DataError(f"member {field} is not UTF-8", found=str(error)) from error

    def size(self, field: str | None) -> int:
        members = self._group.members
        if field is None:
            return sum(member.size for member in members.values())
        if field not in members:
            raise DataError(f'has no member "{field}"', found=f"members: {', '.join(members)}")
        return members[field].size

    def sample(self) -> dict[str, Any]:
        self._check_size(sum(member.size for member in self._group.members.values()))
        return self._group.sample()

    def _member(self, field: str) -> tuple[str | None, str]:
        """The longest extension that is a prefix of the field ("seg.json" may be one), and the rest of the field."""
        parts = field.split(".")
        for count in range(len(parts), 0, -1):
            extension = ".".join(parts[:count])
            if extension in self._group.members:
                return extension, ".".join(parts[count:])
        return None, ""

    def _decode(self, extension: str) -> Any:
        self._check_size(self._group.members[extension].size)
        content = self._group.content(extension)
        try:
            return self._parsed(extension, content)
        except RecursionError:
            raise DataError(
                f"member {extension} is nested too deeply",
                found="brackets within brackets, hundreds deep",
                fix="flatten its contents, or leave the sample out of the shard",
            ) from None

    def _parsed(self, extension: str, content: bytes) -> Any:
        if extension.rpartition(".")[2] != "json":
            text = content.decode("utf-8", "replace").strip()
            try:
                return msgspec.json.decode(text, type=int | float)
            except msgspec.DecodeError:
                return text
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            try:
                return json.loads(content.decode("utf-8", "replace"))
            except ValueError:
                raise DataError(f"broken JSON in member {extension}", found=str(error)) from error

    def _check_size(self, size: int) -> None:
        if size > self._longest:
            raise DataError(
                "too large to be read for its fields",
                found=f"{size:,} bytes",
                expected=f"at most {self._longest:,}",
                fix="raise the memory per worker (--memory)",
            )


def _chunk(collector: Collector, offsets: list[int]) -> Chunk:
    return Chunk(len(offsets), {_OFFSETS: np.array(offsets, dtype=np.uint64), **collector.take()})


def groups(reader: TarReader, skipped: list[int] | None = None) -> Iterator[Group]:
    """Runs of members with one key. Members without a stem or an extension belong to no sample, as WebDataset has it.

    The places of those are added to `skipped`.
    """
    group: Group | None = None
    for member in reader.members():
        folder, slash, base = member.name.rpartition("/")
        stem, dot, extension = base.partition(".")
        if not stem or not dot:
            if skipped is not None:
                skipped.append(member.first)
            continue
        key, extension = f"{folder}{slash}{stem}", extension.lower()
        if group is None or group.key != key:
            if group is not None:
                yield group
            group = Group(reader, key, {})
        if extension in group.members:
            raise DataError(
                f'{reader.file.path}, byte {member.first:,}: member "{member.name}" is a duplicate in its sample',
                expected="one member of each extension",
            )
        group.members[extension] = member
    if group is not None:
        yield group


def all_groups(reader: TarReader, skipped: list[int]) -> Iterator[Group]:
    """Every sample of a tar. Law: no two have the same key; the check keeps 8 bytes per sample."""
    file = reader.file
    seen = array("q")
    for group in groups(reader, skipped):
        seen.append(hash(group.key))
        yield group
    hashes, counts = np.unique(np.frombuffer(seen, dtype=np.int64), return_counts=True)
    suspects = set(hashes[counts > 1].tolist())
    if not suspects:
        return
    first: dict[str, int] = {}
    for group in groups(TarReader(file)):
        if hash(group.key) in suspects and first.setdefault(group.key, group.first) != group.first:
            raise DataError(
                f'{file.path}, byte {group.first:,}: sample "{group.key}" is split: its members are not consecutive',
                found=f"it began at byte {first[group.key]:,}, and other samples follow in between",
                expected="all members of a sample one after another",
                fix="write the shard again, sorted by name",
            )
