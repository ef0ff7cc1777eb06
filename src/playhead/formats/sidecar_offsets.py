"""The offsets that sidecars hold: of lines, and of the samples of tars as lhotse and NeMo group their members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from playhead.formats.contract import ScanLimits
from playhead.formats.tar import TarMember
from playhead.store import File, Files, ReadingAhead, compression_of, open_file
from playhead.types import UIntArray

_AT_ONCE = 4096


def line_sidecars(paths: Iterable[str], files: Files, limits: ScanLimits) -> Iterator[tuple[str, Iterable[UIntArray]]]:
    """The files of lines, each with the pieces of its offsets. Compressed ones have no sidecar."""
    for path in paths:
        if compression_of(path) is None:
            yield path, _line_starts(open_file(files, path), limits)


def tar_offsets(file: File, firsts: Iterator[int]) -> Iterator[UIntArray]:
    """The pieces of the offsets of a tar, whose samples begin at `firsts`."""
    while piece := list(islice(firsts, _AT_ONCE)):
        yield np.array(piece, np.uint64)
    yield np.array([file.size], np.uint64)


def first_by_stem(members: Iterable[TarMember]) -> Iterator[int]:
    """Where the samples of a NeMo tar begin: consecutive members whose base names differ in their extension only."""
    last = None
    for member in members:
        name = member.name.rpartition("/")[2]
        stem = name.rpartition(".")[0] or name
        if stem != last:
            yield member.first
        last = stem


def _line_starts(file: File, limits: ScanLimits) -> Iterator[UIntArray]:
    """The first byte of every line, blank ones too, and the size of the file."""
    base, ahead = 0, ReadingAhead(file)
    yield np.zeros(1 if file.size else 0, dtype=np.uint64)
    while base < file.size:
        data = ahead.read(base, limits.chunk_bytes)
        after = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10) + (base + 1)
        base += len(data)
        yield after[after < file.size].astype(np.uint64)
    yield np.array([file.size], dtype=np.uint64)
