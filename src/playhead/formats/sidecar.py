"""`<file>.idx`: little-endian uint64 offsets of every record, as lhotse 2.0 and NeMo store them beside a file.

A sidecar that is empty, misaligned, older than its file or impossible counts as absent, never as an empty file.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from playhead.errors import PlayheadError, RecipeError
from playhead.formats.contract import ScanLimits
from playhead.formats.lines import BOM
from playhead.store import (
    File,
    Files,
    Ranges,
    compression_of,
    is_url,
    open_file,
    replacing,
    requests_cost,
    writing_to,
)
from playhead.store.objects import is_writable, write_object
from playhead.types import UIntArray

_NUM_SAMPLED = 64
_BLOCK = 1 << 20
_NEWLINE = 10


def sidecar_path(path: str, indexes_root: str | None) -> str:
    """Where the sidecar of a file is: beside it, or under a root with scheme and leading slash dropped."""
    if indexes_root is None:
        return f"{path}.idx"
    parts = urlsplit(path)
    bare = f"{parts.netloc}{parts.path}" if is_url(path) else path
    return f"{indexes_root.rstrip('/')}/{bare.lstrip('/')}.idx"


def load(file: File, limits: ScanLimits) -> UIntArray | None:
    """The first byte of every line (blank ones too) from a valid sidecar; None if there is none."""
    if compression_of(file.path) is not None:  # no tool writes one for files without random access
        return None
    offsets = offsets_of(file, limits)
    if offsets is None:
        return None
    chosen = np.unique(np.linspace(0, offsets.size - 1, min(_NUM_SAMPLED, offsets.size)).astype(np.int64))
    sampled = offsets[chosen][offsets[chosen] > 0]
    if not (bytes_at(file, sampled - np.uint64(1)) == _NEWLINE).all() or offsets[0] != 0:
        return None
    if file.read(0, len(BOM)) == BOM:
        offsets[0] = len(BOM)
    return offsets


def offsets_of(file: File, limits: ScanLimits) -> UIntArray | None:
    """The offsets of a possible sidecar without its sentinel, whatever kind of file it belongs to."""
    try:
        found = open_file(file.files, sidecar_path(file.path, limits.indexes_root))
    except PlayheadError:  # stores without permission to list refuse access to missing files
        return None
    if found.size == 0 or found.size % 8 or _is_older(found, file):
        return None
    offsets = np.frombuffer(b"".join(found.pieces()), dtype="<u8").astype(np.uint64)
    if bool((offsets[1:] <= offsets[:-1]).any()) or offsets[-1] > file.size:
        return None
    # NeMo's have no sentinel; for an empty file there is only the sentinel.
    offsets = offsets[:-1] if offsets[-1] == file.size else offsets
    return offsets if offsets.size else None


def is_valid(file: File, limits: ScanLimits) -> bool:
    """Whether a file has a sidecar that would be used: of lines, one that points at lines."""
    return (offsets_of(file, limits) if file.path.endswith(".tar") else load(file, limits)) is not None


def _is_older(found: File, file: File) -> bool:
    """Whether a sidecar is older than its file; the mark of an object is not a time, so it may be valid."""
    return not is_url(file.path) and not is_url(found.path) and found.stamp.mark < file.stamp.mark


def write(path: str, pieces: Iterable[UIntArray], limits: ScanLimits, files: Files | None = None) -> None:
    """Write a sidecar atomically: a reader never sees a partial one. That of an object is an object beside it.

    `files` is the storage of the file, whose options are those of its store.
    """
    place = sidecar_path(path, limits.indexes_root)
    encoded = (piece.astype("<u8", copy=False).tobytes() for piece in pieces)
    if is_url(place):
        if not is_writable(place):
            raise RecipeError(
                f"{path}: no location for its sidecar",
                found=f"{place}, which cannot be written to",
                expected="`indexes_root` in the recipe: a local directory or a bucket for the sidecars of objects",
            )
        write_object(place, b"".join(encoded), files)
        return
    target = Path(place)
    with writing_to(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.writelines(encoded)


def bytes_at(file: File, positions: UIntArray) -> npt.NDArray[np.uint8]:
    """The byte at each of some increasing positions: on a disk by one read for each stretch that holds any, in a store
    by requests for these bytes alone, in flight together.
    """
    if requests_cost(file.files, file.path):
        ranges = Ranges(positions.tolist(), (positions + np.uint64(1)).tolist())
        return np.frombuffer(b"".join(file.files.read(file.path, file.stamp, ranges)), dtype=np.uint8)
    found = np.empty(positions.size, dtype=np.uint8)
    blocks = positions // np.uint64(_BLOCK)
    bounds = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), positions.size]
    for low, high in pairwise(bounds):
        if low == high:
            continue
        first = int(positions[low])
        data = np.frombuffer(file.read(first, int(positions[high - 1]) - first + 1), dtype=np.uint8)
        found[low:high] = data[(positions[low:high] - np.uint64(first)).astype(np.int64)]
    return found
