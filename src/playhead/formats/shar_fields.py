"""The fields of a Shar shard, scanned along its cuts: row n of every field belongs to cut n."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from playhead.errors import DataError
from playhead.formats.collect import identity
from playhead.formats.contract import ScanLimits
from playhead.formats.jsonl import row_object
from playhead.formats.lhotse_cuts import ID
from playhead.formats.lines import Lines, num_newlines, read_lines
from playhead.formats.schema import Track
from playhead.formats.tar import TarMember, TarReader
from playhead.formats.tar_hints import tar_hints
from playhead.store import File
from playhead.types import Array

TAR = ".tar"
CUT_ID = "cut_id"
NO_DATA, NUMPY, LILCOM = "nodata", "npy", "llc"
_MANIFESTS = {True: "json", False: "nometa"}  # by whether there is data


class Pair(NamedTuple):
    """A sample of a tar: its data, and its manifest."""

    data: TarMember
    manifest: TarMember

    @property
    def key(self) -> str:
        return self.data.name.rpartition(".")[0]

    @property
    def extension(self) -> str:
        return self.data.name.rpartition(".")[2].lower()


def pairs(reader: TarReader) -> Iterator[Pair]:
    """The samples of a tar. Law: members that are not pairs as SharWriter writes them are an error."""
    members = reader.members()
    for data in members:
        manifest = next(members, None)
        if manifest is None:
            raise DataError(
                f"{_place(reader, data)}: the tar has an odd number of members",
                found=f'"{data.name}" without a manifest',
                expected="members in pairs: data, then its manifest",
                fix="write the shard again",
            )
        pair = Pair(data, manifest)
        expected = f"{pair.key}.{_MANIFESTS[pair.extension != NO_DATA]}"
        if manifest.name != expected:
            raise DataError(
                f'{_place(reader, data)}: member "{data.name}" has no manifest after it',
                found=f'"{manifest.name}"',
                expected=f'"{expected}"',
                fix="write the shard again",
            )
        yield pair


def _place(reader: TarReader, member: TarMember) -> str:
    return f"{reader.file.path}, byte {member.first:,}"


class _Aligned(NamedTuple):
    """A row of a field: the id of its cut, its first byte and its end."""

    cut_id: str
    first: int
    end: int


class ScannedField:
    """A field of a shard, with one row for each cut."""

    def __init__(self, role: str, file: File, cuts: File, limits: ScanLimits) -> None:
        self._file, self._cuts = file, cuts
        self._rows = _tar_rows(file, limits) if file.path.endswith(TAR) else _line_rows(file, limits)
        self._offsets = Track(role).array("offsets")
        self._end = 0

    def take(self, ids: Sequence[str], row: int) -> dict[str, Array]:
        """The places of the next rows, whose cuts have these ids; `row` is the number of the first."""
        found = list(islice(self._rows, len(ids)))
        if [each.cut_id for each in found] != ids:
            raise self._misaligned(ids, found, row)
        if found:
            self._end = found[-1].end
        return {self._offsets: np.array([each.first for each in found], np.uint64)}

    def finish(self, num_rows: int) -> dict[str, Array]:
        """The sentinel, after the last cut."""
        more = next(self._rows, None)
        if more is not None:
            raise DataError(
                f"{self._file.path}: has more rows than there are cuts",
                found=f'row {num_rows:,} "{more.cut_id}", at byte {more.first:,}',
                expected=f"{num_rows:,} rows, as {self._cuts.path} has",
                fix="write the shard again, with all of its fields",
            )
        return {self._offsets: np.array([self._end], np.uint64)}

    def _misaligned(self, ids: Sequence[str], found: Sequence[_Aligned], row: int) -> DataError:
        same = (i for i, (a, b) in enumerate(zip(ids, found, strict=False)) if a != b.cut_id)
        i = next(same, len(found))
        return DataError(
            f"{self._file.path}: its rows are not those of the cuts",
            found=f'row {row + i:,} is "{found[i].cut_id}"' if i < len(found) else f"it ends after {row + i:,} rows",
            expected=f'row {row + i:,} of {self._cuts.path}: "{ids[i]}"',
            fix="write the shard again, with all of its fields",
        )


def cut_ids(file: File, lines: Lines, field: str = ID) -> list[str]:
    """The ids of cuts in lines; a field of lines uses another key."""
    decoder = _IDS[field]
    if lines.regular:
        try:
            found = decoder.decode_lines(lines.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = []
        if len(found) == lines.starts.size:
            return [str(each.value) for each in found]
    return [
        _cut_id(file, lines, start, end, field)
        for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
    ]


def _cut_id(file: File, lines: Lines, start: int, end: int, field: str) -> str:
    try:
        return identity(row_object(lines.data[start:end], "replace").get(field), field)
    except DataError as error:
        first = lines.base + start
        error.at(f"{file.path}, line {1 + num_newlines(file, first):,}, byte {first:,}")
        raise


def _decoder(field: str) -> msgspec.json.Decoder[Any]:
    kind = msgspec.defstruct("Id", [("value", str | int)], rename={"value": field}, frozen=True, gc=False)
    return msgspec.json.Decoder(kind)


_IDS = {field: _decoder(field) for field in (ID, CUT_ID)}


def _tar_rows(file: File, limits: ScanLimits) -> Iterator[_Aligned]:
    for pair in pairs(TarReader(file, hints=tar_hints(file, limits))):
        if pair.extension == LILCOM:
            load_lilcom(f"{file.path}, byte {pair.data.first:,}")
        yield _Aligned(pair.key, pair.data.first, min(pair.manifest.end, file.size))


def _line_rows(file: File, limits: ScanLimits) -> Iterator[_Aligned]:
    for lines in read_lines(file, limits):
        firsts, ends = (lines.starts + lines.base).tolist(), (lines.ends + lines.base).tolist()
        yield from map(_Aligned, cut_ids(file, lines, CUT_ID), firsts, ends)


def load_lilcom(where: str) -> Any:
    """The package that decompresses `.llc`, or an error that names it."""
    try:
        import lilcom
    except ImportError as error:
        raise DataError(
            f"{where}: an array compressed by lilcom, which is not installed",
            fix="pip install lilcom, or write the field with `numpy`",
        ) from error
    return lilcom
