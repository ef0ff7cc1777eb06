"""Sidecars of the files of a shard, written where they are missing."""

from __future__ import annotations

from playhead.formats import sidecar
from playhead.formats.contract import Format, ScanLimits, WithSidecars
from playhead.formats.rows import Shard
from playhead.store import Files, open_file


def write_sidecars(format: Format, shard: Shard, files: Files, limits: ScanLimits) -> int:  # noqa: A002
    """Write the missing or invalid sidecars of a shard; returns how many."""
    if not isinstance(format, WithSidecars):
        return 0
    count = 0
    for path, pieces in format.sidecars(shard, files, limits):
        if sidecar.offsets_of(open_file(files, path), limits) is None:
            sidecar.write(path, pieces, limits, files)
            count += 1
    return count
