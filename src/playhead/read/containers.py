"""Whether all samples that a container declares are in the file: libsndfile accepts truncated files.

Most are chunks, each with a name and a size; Ogg is pages.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from playhead.errors import SampleError
from playhead.read.wav import Readable

_MOST_CHUNKS = 64
_PAGE_HEADER_BYTES = 27
_LONGEST_PAGE = _PAGE_HEADER_BYTES + 255 + 255 * 255
_DATA_GUID = b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
_UNKNOWN = (0, 0x7FFFF000, 0xFFFFFFFF, (1 << 64) - 1)  # of files that were written to a pipe, or not closed


class _Chunks(NamedTuple):
    """Chunks of a container: where they begin, how large their names are, how their sizes are written, whether
    these count name and size too, what ends are rounded up to; and the name of the chunk of samples.
    """

    first: int
    name_bytes: int
    size: str
    counts_header: bool
    align: int
    samples: bytes


_CONTAINERS = {
    b"FORM": _Chunks(12, 4, ">I", False, 2, b"SSND"),
    b"RIFX": _Chunks(12, 4, ">I", False, 2, b"data"),
    b"caff": _Chunks(8, 4, ">Q", False, 1, b"data"),
    b"riff": _Chunks(40, 16, "<Q", True, 8, _DATA_GUID),
}


def check_whole(source: Readable) -> None:
    """Refuse a file that ends before its samples do, by the size that its container declares."""
    magic = bytes(source.read(0, 4))
    end_of = {b".snd": _end_of_au, b"OggS": _end_of_last_page}.get(magic)
    end = _end_of_samples(source, _CONTAINERS.get(magic)) if end_of is None else end_of(source)
    if end is not None and end > source.size:
        raise SampleError(
            f"{source.path}: is truncated",
            found=f"{source.size:,} bytes",
            expected=f"{end:,} up to the end of its samples",
            fix="restore the file",
        )


def _end_of_samples(source: Readable, chunks: _Chunks | None) -> int | None:
    """Where the samples end; None if the container does not declare it."""
    if chunks is None:
        return None
    at = chunks.first
    header = chunks.name_bytes + struct.calcsize(chunks.size)
    for _ in range(_MOST_CHUNKS):
        found = bytes(source.read(at, header))
        if len(found) < header:
            return None
        (size,) = struct.unpack(chunks.size, found[chunks.name_bytes :])
        end = at + size + (0 if chunks.counts_header else header)
        if found[: chunks.name_bytes] == chunks.samples:
            return None if size in _UNKNOWN else end
        if end <= at:
            return None
        at = -(-end // chunks.align) * chunks.align
    return None


def _end_of_last_page(source: Readable) -> int | None:
    first = max(0, source.size - _LONGEST_PAGE)
    data = bytes(source.read(first, _LONGEST_PAGE))
    at = data.rfind(b"OggS\0")
    header = data[at : at + _PAGE_HEADER_BYTES]
    if at < 0:
        return None
    if len(header) < _PAGE_HEADER_BYTES:
        return first + at + _PAGE_HEADER_BYTES
    sizes = data[at + _PAGE_HEADER_BYTES : at + _PAGE_HEADER_BYTES + header[-1]]
    return first + at + _PAGE_HEADER_BYTES + header[-1] + sum(sizes)


def _end_of_au(source: Readable) -> int | None:
    header = bytes(source.read(4, 8))
    first, size = struct.unpack(">II", header) if len(header) == 8 else (0, 0)
    return None if size in _UNKNOWN else first + size
