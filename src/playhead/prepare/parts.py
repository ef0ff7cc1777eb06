"""A scanned shard, or a section of a large one, as plain arrays in `.npz` files, which a killed `prepare` keeps.

The last file also has the summary, and is written last: if it exists, the part is complete. A part that is too large
for one file has numbered files before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import msgspec
import numpy as np
from msgspec import Struct

from playhead.errors import DataError, PrepareError
from playhead.fingerprint import digest
from playhead.formats.contract import Chunk, Divisible, Format, ScanLimits, Section
from playhead.formats.rows import Shard
from playhead.formats.schema import LENGTHS, ArrayType, Track, schema_of, tracks_in
from playhead.formats.spec import Spec
from playhead.index.layout import FileEntry, files_now
from playhead.recipe.units import UNKNOWN_LENGTH
from playhead.store import Files, replacing
from playhead.types import Array

_MOST_BYTES = 32 << 20  # of arrays in one file
_NUM_ROWS, _SUMMARY = "num_rows", "summary"


class PartSummary(Struct, frozen=True):
    """The summary of a scanned part; `sizes` are those of its arrays.

    `num_unknown` counts the rows whose length needs the header of a medium, which a scan does not read; `types` are the
    types of the columns of its files.
    """

    files: tuple[FileEntry, ...]
    roles: tuple[str, ...]
    tracks: tuple[Track, ...]
    num_rows: int
    num_skipped: int
    sizes: dict[str, int]
    num_files: int
    num_unknown: int = 0
    types: dict[str, str] = {}


@dataclass(frozen=True)
class ScanJob:
    """A shard, or a section of one, to scan into a part."""

    format: Format
    shard: Shard
    section: Section | None
    spec: Spec
    files: Files
    limits: ScanLimits
    path: Path

    @property
    def name(self) -> str:
        return self.shard.name if self.section is None else f"{self.shard.name}, from byte {self.section.first:,}"

    def run(self) -> PartSummary:
        """Scan the shard; one that changes meanwhile is refused."""
        before = files_now(self.shard, self.files)
        writer = PartWriter(self, before)
        for chunk in self._chunks():
            writer.add(chunk)
        if files_now(self.shard, self.files) != before:
            raise DataError(f"{self.shard.name}: changed while it was scanned", fix="run it again when it is complete")
        return writer.finish()

    def _chunks(self) -> Iterator[Chunk]:
        if self.section is None:
            return self.format.scan(self.shard, self.spec, self.files, self.limits)
        assert isinstance(self.format, Divisible)
        return self.format.scan_section(self.shard, self.section, self.spec, self.files, self.limits)


def part_path(directory: Path, files: tuple[FileEntry, ...], section: Section | None) -> Path:
    """The file name of the part, which depends on the files it was made from."""
    return directory / f"{digest([files, section])}.npz"


class PartWriter:
    """Collects chunks, and writes a file whenever there are enough."""

    def __init__(self, job: ScanJob, files: tuple[FileEntry, ...]) -> None:
        self._job, self._files = job, files
        self._roles = tuple(role for role, _ in job.shard.files)
        self._tracks: tuple[Track, ...] = ()
        self._chunks: list[Chunk] = []
        self._num_rows = 0
        self._num_bytes = self._num_files = self._num_skipped = self._num_unknown = 0
        self._sizes: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._schema: dict[str, ArrayType] = {}

    def add(self, chunk: Chunk) -> None:
        if not self._sizes:
            self._tracks = tracks_in(chunk.arrays, self._roles)
            self._schema = schema_of(self._job.spec, self._tracks)
            self._sizes = dict.fromkeys(self._schema, 0)
        if chunk.arrays.keys() != self._sizes.keys():
            raise self._other_arrays(chunk)
        self._check_types(chunk)
        self._check_ends(chunk)
        for name, values in chunk.arrays.items():
            self._sizes[name] += len(values)
            self._num_bytes += values.nbytes
        self._types.update(chunk.types or {})
        self._num_rows += chunk.num_rows
        self._num_skipped += chunk.num_skipped
        if LENGTHS in chunk.arrays:
            self._num_unknown += int(np.count_nonzero(chunk.arrays[LENGTHS] == UNKNOWN_LENGTH))
        self._chunks.append(chunk)
        if self._num_bytes > _MOST_BYTES:
            self._write(_numbered(self._job.path, self._num_files), {})
            self._num_files += 1

    def finish(self) -> PartSummary:
        counts = (self._num_rows, self._num_skipped, self._sizes, self._num_files + 1, self._num_unknown)
        summary = PartSummary(self._files, self._roles, self._tracks, *counts, self._types)
        self._write(self._job.path, {_SUMMARY: np.frombuffer(msgspec.json.encode(summary), dtype=np.uint8)})
        return summary

    def _write(self, path: Path, more: dict[str, Array]) -> None:
        names = self._sizes if self._chunks else ()
        arrays: dict[str, Array] = {name: np.concatenate([c.arrays[name] for c in self._chunks]) for name in names}
        arrays[_NUM_ROWS] = np.array(sum(chunk.num_rows for chunk in self._chunks))
        with replacing(path) as file:
            np.savez(file, **(arrays | more))  # type: ignore[arg-type]
        self._chunks, self._num_bytes = [], 0

    def _check_types(self, chunk: Chunk) -> None:
        """Refuse arrays of a wrong type or size from a format: casting would change numbers silently."""
        for name, wanted in self._schema.items():
            values = chunk.arrays[name]
            if values.dtype != np.dtype(wanted.dtype) or values.ndim != 1:
                raise DataError(
                    f"{self._job.shard.name}: the format returned an array of the wrong type: {name}",
                    found=f"dtype {values.dtype}, {values.ndim} axes",
                    expected=f"dtype {np.dtype(wanted.dtype)}, 1 axis",
                    fix="correct the format's scan",
                )
            if wanted.per == "row" and len(values) != chunk.num_rows:
                raise DataError(
                    f"{self._job.shard.name}: the format returned an array of the wrong size: {name}",
                    found=f"{len(values):,} entries",
                    expected=f"{chunk.num_rows:,}, one for each row of the chunk",
                    fix="correct the format's scan",
                )

    def _check_ends(self, chunk: Chunk) -> None:
        """Refuse rows that end after their file does: a manifest of a truncated file."""
        for track in self._tracks:
            file = self._files[self._roles.index(track.name)]
            last = chunk.arrays[track.last].max(initial=0)
            if last > file.size:
                raise DataError(
                    f"{file.path}: a row ends after the file does",
                    found=f"a file of {file.size:,} bytes",
                    expected=f"{int(last):,} bytes at least, by {self._job.shard.name}",
                    fix="restore the file, or take the shard out of the recipe's path",
                )

    def _other_arrays(self, chunk: Chunk) -> DataError:
        return DataError(
            f"{self._job.shard.name}: the format returned unexpected arrays",
            found=", ".join(sorted(chunk.arrays)) or "none",
            expected=", ".join(sorted(self._sizes)) or "none",
            fix="report it to the author of the format; see docs/formats.md on chunks",
        )


def read_summary(path: Path) -> PartSummary | None:
    """The summary of a part; None if there is no complete part."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return msgspec.json.decode(arrays[_SUMMARY].tobytes(), type=PartSummary)
    except (OSError, ValueError, KeyError, BadZipFile, msgspec.DecodeError):
        return None


def read_part(path: Path, summary: PartSummary) -> Iterator[Chunk]:
    """The chunks of a part, one at a time."""
    for number in range(summary.num_files):
        file = path if number == summary.num_files - 1 else _numbered(path, number)
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in summary.sizes if name in arrays}
                chunk = Chunk(int(arrays[_NUM_ROWS]), found)
        except (OSError, ValueError, KeyError, BadZipFile, zlib.error) as error:
            raise PrepareError(
                f"{file}: a scanned part of an earlier run is damaged",
                found=f"{type(error).__name__}: {error}",
                fix="run `playhead prepare --force` on the recipe, and check the disk",
            ) from error
        yield chunk


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}.npz")
