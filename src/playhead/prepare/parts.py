"""A scanned shard as one file, kept until the whole index is in place: what a killed `prepare` need not do again.

Frames, each 8 bytes of size and a msgpack map; the last one is the summary, its size repeated at the very end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from playhead.errors import DataError
from playhead.fingerprint import digest
from playhead.formats.contract import Chunk, Format, ScanLimits, Shard
from playhead.formats.spec import Spec
from playhead.index.layout import FileEntry, ShardEntry, entry_of
from playhead.store import File, open_file, replacing
from playhead.types import Array

_SIZE_BYTES = 8


class _Frame(Struct):
    num_rows: int
    offsets: dict[str, bytes]
    ends: dict[str, int]
    lengths: bytes | None
    outputs: bytes | None
    columns: dict[str, tuple[str, bytes]]
    ids: bytes | None


class Summary(Struct, frozen=True):
    """What is known of a shard once it is scanned."""

    files: tuple[FileEntry, ...]
    roles: tuple[str, ...]
    tracks: tuple[str, ...]
    num_rows: int
    num_skipped: int = 0

    @property
    def entry(self) -> ShardEntry:
        return ShardEntry(self.files, self.num_rows, self.num_skipped)


def part_path(directory: Path, entry: ShardEntry) -> Path:
    """A part is found again by the files it was made from."""
    return directory / f"{digest(entry.files)}.part"


def write_part(format: Format, shard: Shard, spec: Spec, limits: ScanLimits, directory: Path) -> Summary:  # noqa: A002
    """Scan a shard into its part file. A shard that changes under the scan is refused."""
    before = entry_of(shard, 0)
    num_rows = num_skipped = 0
    tracks: tuple[str, ...] = ()
    with replacing(part_path(directory, before)) as file:
        for chunk in format.scan(shard, spec, limits):
            num_rows += chunk.num_rows
            num_skipped += chunk.num_skipped
            tracks = tuple(chunk.offsets)
            packed = msgspec.msgpack.encode(_frame(chunk))
            file.write(len(packed).to_bytes(_SIZE_BYTES, "little") + packed)
        if num_rows == 0:
            raise DataError(
                f"{shard.name}: has no rows",
                found=f"{before.files[0].size:,} bytes, not one sample in them",
                expected="at least one sample",
                fix="restore the file, or take it out of the recipe's path",
            )
        if entry_of(shard, 0) != before:
            raise DataError(f"{shard.name}: changed while it was scanned", fix="run it again when it is complete")
        summary = Summary(before.files, tuple(role for role, _ in shard.files), tracks, num_rows, num_skipped)
        packed = msgspec.msgpack.encode(summary)
        size = len(packed).to_bytes(_SIZE_BYTES, "little")
        file.write(size + packed + size)
    return summary


def read_summary(path: Path) -> Summary | None:
    """The summary of a part; None where there is no whole part."""
    if not path.is_file():
        return None
    with open_file(str(path)) as file:
        size = int.from_bytes(file.read(file.size - _SIZE_BYTES, _SIZE_BYTES), "little") if file.size > 16 else 0
        packed = file.read(file.size - _SIZE_BYTES - size, size) if 0 < size < file.size else b""
    try:
        return msgspec.msgpack.decode(packed, type=Summary)
    except msgspec.DecodeError:
        return None


def read_part(path: Path) -> Iterator[Chunk]:
    """The chunks of a part, one at a time."""
    with open_file(str(path)) as file:
        for frame in _frames(file):
            yield Chunk(
                frame.num_rows,
                {track: np.frombuffer(raw, dtype="<u8") for track, raw in frame.offsets.items()},
                frame.ends,
                None if frame.lengths is None else np.frombuffer(frame.lengths, dtype="<u4"),
                None if frame.outputs is None else np.frombuffer(frame.outputs, dtype="<u4"),
                {name: np.frombuffer(raw, dtype=kind) for name, (kind, raw) in frame.columns.items()},
                None if frame.ids is None else np.frombuffer(frame.ids, dtype="<u8"),
            )


def _frames(file: File) -> Iterator[_Frame]:
    position = 0
    while True:
        size = int.from_bytes(file.read(position, _SIZE_BYTES), "little")
        if position + size + 2 * _SIZE_BYTES >= file.size:
            return
        yield msgspec.msgpack.decode(file.read(position + _SIZE_BYTES, size), type=_Frame)
        position += _SIZE_BYTES + size


def _frame(chunk: Chunk) -> _Frame:
    return _Frame(
        chunk.num_rows,
        {track: _raw(offsets, "<u8") for track, offsets in chunk.offsets.items()},
        dict(chunk.ends),
        None if chunk.lengths is None else _raw(chunk.lengths, "<u4"),
        None if chunk.outputs is None else _raw(chunk.outputs, "<u4"),
        {name: (column.dtype.str, column.tobytes()) for name, column in chunk.columns.items()},
        None if chunk.ids is None else _raw(chunk.ids, "<u8"),
    )


def _raw(values: Array, kind: str) -> bytes:
    return values.astype(kind, copy=False).tobytes()
