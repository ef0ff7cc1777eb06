"""Messages of Arrow's IPC formats: where each is in a file, and where the buffers of a record batch are in it.

pyarrow reads messages whole, and does not say where they are. This reads just the few fields of their metadata
(flatbuffers of `Message.fbs` and `File.fbs`) that say so. Files are untrusted: whatever is not inside its bytes is a
DataError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from playhead.errors import DataError
from playhead.store import File
from playhead.types import IntArray

SCHEMA, DICTIONARY, RECORD_BATCH = 1, 2, 3
HEAD_BYTES = 1 << 12  # enough for the metadata of most messages
_PREFIX_BYTES = 8
_CONTINUATION = b"\xff\xff\xff\xff"
_MAGIC = b"ARROW1"
_FILE_BEGIN = 8
_MOST_ROWS = 1 << 31  # of a batch
_FILE_ENDING = len(_MAGIC) + 4


class Message(NamedTuple):
    """A message: what it is, its first byte, the first of its body, and its end."""

    kind: int
    first: int
    body: int
    end: int
    metadata: bytes


@dataclass(frozen=True)
class BatchHeader:
    """A record batch: its rows; rows and nulls of each field, depth first; offset and size of each buffer."""

    num_rows: int
    nodes: IntArray
    buffers: IntArray
    is_compressed: bool


def read_message(file: File, first: int, head: bytes | None = None) -> Message | None:
    """The message at a byte, its body unread; None for the end marker. `head` are its first bytes, if known."""
    head = file.read(first, HEAD_BYTES) if head is None else head
    place = f"{file.path}, byte {first:,}"
    if len(head) < _PREFIX_BYTES:
        raise _cut_short(file, first)
    if head[:4] != _CONTINUATION:
        raise DataError(
            f"{place}: not an Arrow message",
            found=f"it begins with {head[:8]!r}",
            expected="an Arrow IPC stream or file",
            fix="write it with a current version of Arrow, as stream or file; Feather version 1 is neither",
        )
    size = int.from_bytes(head[4:_PREFIX_BYTES], "little", signed=True)
    if size == 0:
        return None
    body = first + _PREFIX_BYTES + size
    if size < 0 or body > file.size:
        raise _cut_short(file, first)
    metadata = head[_PREFIX_BYTES : _PREFIX_BYTES + size]
    if len(metadata) < size:
        metadata = file.read(first + _PREFIX_BYTES, size)
    with _inside(place):
        kind, body_size = _message(metadata)
    if body_size < 0 or kind not in (SCHEMA, DICTIONARY, RECORD_BATCH):
        raise _broken(place)
    if body + body_size > file.size:
        raise _cut_short(file, first)
    return Message(kind, first, body, body + body_size, metadata)


def read_messages(file: File, *, allow_no_end: bool = False) -> Iterator[Message]:
    """All messages of a stream or a file. Law: it is complete up to its end marker; a file up to its footer."""
    begin = file.read(0, _FILE_BEGIN)
    is_file = begin.startswith(_MAGIC)
    first = _FILE_BEGIN if is_file else 0
    footer = _footer_batches(file) if is_file else None
    found = []
    while True:
        if allow_no_end and first == file.size and not is_file:
            return
        message = read_message(file, first)
        if message is None:
            break
        if message.kind == RECORD_BATCH:
            found.append(message.first)
        yield message
        first = message.end
    if footer is not None and footer != found:
        raise DataError(
            f"{file.path}: its footer does not match the batches in the file",
            found=f"{len(found):,} batches",
            expected=f"{len(footer):,}",
            fix="write it again",
        )


def batch_header(message: Message, place: str) -> BatchHeader:
    """The header of a record batch, or of the one that holds the values of a dictionary.

    Law: every buffer is inside the body, and no field has more nulls than rows.
    """
    with _inside(place):
        header = _batch_table(message)
        num_rows = _number(message.metadata, header, 0, "<q")
        nodes = _structs(message.metadata, header, 1, 16)
        buffers = _structs(message.metadata, header, 2, 16)
        is_compressed = _slot(message.metadata, header, 3) != 0
    size = message.end - message.body
    ends = buffers[:, 0] + buffers[:, 1]
    if not 0 <= num_rows < _MOST_ROWS or (nodes < 0).any() or (nodes[:, 1] > nodes[:, 0]).any():
        raise _broken(place)
    if len(nodes) and nodes[0, 0] != num_rows:
        raise _broken(place)
    if (buffers < 0).any() or (ends < buffers[:, 0]).any() or (ends > size).any():
        raise _broken(place)
    return BatchHeader(num_rows, nodes, buffers, is_compressed)


def is_compressed(message: Message, place: str) -> bool:
    """Whether the buffers of a batch are compressed, according to its header."""
    with _inside(place):
        return _slot(message.metadata, _batch_table(message), 3) != 0


def _batch_table(message: Message) -> int:
    header = _table_at(message.metadata, _root(message.metadata), 2)
    return _table_at(message.metadata, header, 1) if message.kind == DICTIONARY else header


def _footer_batches(file: File) -> list[int]:
    """The first byte of each record batch, according to the footer of a file."""
    ending = file.read(max(0, file.size - _FILE_ENDING), _FILE_ENDING)
    if file.size < _FILE_BEGIN + _FILE_ENDING or not ending.endswith(_MAGIC):
        raise _cut_short(file, file.size)
    size = int.from_bytes(ending[:4], "little", signed=True)
    first = file.size - _FILE_ENDING - size
    if size <= 0 or first < _FILE_BEGIN:
        raise _broken(f"{file.path}, its footer")
    footer = file.read(first, size)
    with _inside(f"{file.path}, its footer"):
        return [int(found) for found in _structs(footer, _root(footer), 3, 24)[:, 0]]


def _message(metadata: bytes) -> tuple[int, int]:
    """The type of a message, and the size of its body."""
    root = _root(metadata)
    return _number(metadata, root, 1, "<B"), _number(metadata, root, 3, "<q")


# A flatbuffer is a tree of tables. A table begins with the distance back to its list of slots: for every field its
# place in the table, or 0 for an absent field.


def _root(data: bytes) -> int:
    return int(struct.unpack_from("<I", data, 0)[0])


def _slot(data: bytes, table: int, field: int) -> int:
    """The position of a field; 0 if it is absent."""
    slots = table - struct.unpack_from("<i", data, table)[0]
    if slots < 0:
        raise ValueError
    (size,) = struct.unpack_from("<H", data, slots)
    if 4 + 2 * field >= size:
        return 0
    (found,) = struct.unpack_from("<H", data, slots + 4 + 2 * field)
    return table + int(found) if found else 0


def _number(data: bytes, table: int, field: int, kind: str) -> int:
    at = _slot(data, table, field)
    return int(struct.unpack_from(kind, data, at)[0]) if at else 0


def _table_at(data: bytes, table: int, field: int) -> int:
    at = _slot(data, table, field)
    if not at:
        raise ValueError
    return at + int(struct.unpack_from("<I", data, at)[0])


def _structs(data: bytes, table: int, field: int, size: int) -> IntArray:
    """A list of structs of whole numbers of 64 bits, a row for each."""
    if not _slot(data, table, field):
        return np.empty((0, size // 8), np.int64)
    at = _table_at(data, table, field)
    (count,) = struct.unpack_from("<I", data, at)
    return np.frombuffer(data, "<i8", count * (size // 8), at + 4).reshape(count, size // 8)


@contextmanager
def _inside(place: str) -> Iterator[None]:
    """The error for metadata that point outside their bytes."""
    try:
        yield
    except (struct.error, ValueError) as error:
        raise _broken(place) from error


def _broken(place: str) -> DataError:
    return DataError(f"{place}: the metadata of the message are broken", fix="restore the file, or write it again")


def _cut_short(file: File, first: int) -> DataError:
    return DataError(
        f"{file.path}: is truncated",
        found=f"{file.size:,} bytes, the last message begins at byte {first:,}",
        expected="an Arrow IPC stream or file with its end marker",
        fix="restore the file; `options: {allow_no_end: true}` accepts streams that only lack the marker",
    )
