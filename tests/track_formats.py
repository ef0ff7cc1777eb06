"""Formats for the three kinds of tracks, of which the package knows nothing.

`members`: lines "id member first size" over a file of bytes: rows in another order than what they name, several rows of
one stretch. `blocks`: compressed blocks of lines, of which the reader keeps the last it has unpacked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from playhead.errors import DataError
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.registry import register
from playhead.formats.rows import Block, Rows, Sample, Shard
from playhead.formats.schema import IDS, LENGTHS, Track
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.seeds import hash_text
from playhead.store import File, Files, list_files, open_file
from playhead.types import Array

LINES, BYTES = Track("lines"), Track("bytes", "spans")
PACKED = Track("packed", "blocks")
HEADER = 8  # of a block: its size in bytes and its rows, as two numbers of 32 bits


def lines_and_bytes(rows: Sequence[tuple[str, int, int]], data: bytes) -> dict[str, bytes]:
    lines = "".join(f"{name} {first} {size}\n" for name, first, size in rows)
    return {"a.members": lines.encode(), "a.bytes": data}


def block_file(blocks: Sequence[Sequence[str]]) -> bytes:
    return b"".join(_block(lines) for lines in blocks)


def _block(lines: Sequence[str]) -> bytes:
    packed = zlib.compress("\n".join(lines).encode())
    return np.array([len(packed), len(lines)], "<u4").tobytes() + packed


@register("members", extensions=(".members",), default_id="id")
class Members:
    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        paths = list_files(files, source.path)
        return [Shard((("lines", path), ("bytes", path.replace(".members", ".bytes")))) for path in paths]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:  # noqa: ARG002
        file, size = open_file(files, shard.path("lines")), open_file(files, shard.path("bytes")).size
        data = file.read(0, file.size)
        offset = 0
        for number, line in enumerate(data.splitlines(keepends=True)):
            name, first, end = _parsed(shard, number, line, size)
            arrays = {
                LINES.array("offsets"): np.array([offset], np.uint64),
                BYTES.array("firsts"): np.array([first], np.uint64),
                BYTES.array("ends"): np.array([end], np.uint64),
            }
            yield Chunk(1, arrays | _asked(spec, [end - first], [name]))
            offset += len(line)
        none = np.empty(0, np.uint64)
        last = {LINES.array("offsets"): np.array([offset], np.uint64)} | dict.fromkeys(BYTES.arrays, none)
        yield Chunk(0, last | _asked(spec, [], []))

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _MembersReader()


class _MembersReader:
    def read(self, rows: Rows) -> Iterable[Sample]:
        for line, data in zip(rows.payloads("lines"), rows.payloads("bytes"), strict=True):
            yield {"id": bytes(line).decode().split()[0], "data": bytes(data)}


def _parsed(shard: Shard, number: int, line: bytes, size: int) -> tuple[str, int, int]:
    words = line.decode(errors="replace").split()
    numbers = len(words) == 3 and words[1].isdecimal() and words[2].isdecimal()
    if not numbers or not line.endswith(b"\n") or int(words[1]) + int(words[2]) > size:
        raise DataError(f"{shard.name}, row {number:,}: not a row of {shard.path('bytes')}", found=repr(line))
    return words[0], int(words[1]), int(words[1]) + int(words[2])


@register("blocks", extensions=(".blocks",), raw_members=False)
class Blocks:
    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        return [Shard((("packed", path),)) for path in list_files(files, source.path)]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:  # noqa: ARG002
        file = open_file(files, shard.name)
        first = 0
        while first < file.size:
            end, lines = _unpacked(file, first)
            arrays = {
                PACKED.array("block_firsts"): np.array([first + HEADER], np.uint64),
                PACKED.array("block_ends"): np.array([end], np.uint64),
                PACKED.array("block_rows"): np.array([len(lines)], np.uint64),
            }
            yield Chunk(len(lines), arrays | _asked(spec, [len(line) for line in lines], lines))
            first = end

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return BlocksReader()


class BlocksReader:
    """Keeps the last block; `num_unpacked` says how often it had to unpack one."""

    def __init__(self) -> None:
        self._kept: tuple[Block | None, list[str]] = None, []
        self.num_unpacked = 0

    def read(self, rows: Rows) -> Iterable[Sample]:
        blocks, numbers = rows.blocks("packed"), rows.places["packed"].numbers
        assert numbers is not None
        found = rows.read_blocks(block for block in blocks if block != self._kept[0])
        for block, number in zip(blocks, numbers.tolist(), strict=True):
            if self._kept[0] != block:
                data = found[block] if block in found else rows.read_blocks([block])[block]
                self._kept = block, zlib.decompress(data).decode().split("\n")
                self.num_unpacked += 1
            yield {"text": self._kept[1][number]}


def _unpacked(file: File, first: int) -> tuple[int, list[str]]:
    header = file.read(first, HEADER)
    size = int(np.frombuffer(header[:4], "<u4")[0]) if len(header) == HEADER else 0
    data = file.read(first + HEADER, size)
    if len(header) < HEADER or len(data) < size:
        raise DataError(f"{file.path}, byte {first:,}: the block is truncated", found=f"{len(data):,} bytes")
    try:
        return first + HEADER + size, zlib.decompress(data).decode().split("\n")
    except (zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{file.path}, byte {first:,}: the block is broken", found=str(error)) from error


def _asked(spec: Spec, lengths: list[int], ids: list[str]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    if spec.length is not None:
        arrays[LENGTHS] = np.array(lengths, np.uint32)
    if spec.ids is not None:
        arrays[IDS] = np.array([hash_text(name) for name in ids], np.uint64)
    return arrays
