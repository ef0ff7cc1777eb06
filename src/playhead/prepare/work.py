"""The jobs of `prepare`: a shard to scan. And what is done shard by shard beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from playhead.formats import sidecar
from playhead.formats.contract import Format, ScanLimits, Shard
from playhead.formats.spec import Spec
from playhead.prepare.parts import Summary, write_part
from playhead.store import open_file


@dataclass(frozen=True)
class ScanJob:
    """One shard to scan into a part."""

    format: Format
    shard: Shard
    spec: Spec
    limits: ScanLimits
    directory: Path

    @property
    def name(self) -> str:
        return self.shard.name

    def run(self) -> Summary:
        return write_part(self.format, self.shard, self.spec, self.limits, self.directory)


def write_sidecars(format: Format, shard: Shard, limits: ScanLimits) -> int:  # noqa: A002
    """Write the sidecars of a shard that are not there and valid; returns how many."""
    count = 0
    for path, pieces in format.sidecars(shard, limits):
        with open_file(path) as file:
            present = sidecar.offsets_in(file, sidecar.sidecar_path(path, limits.indexes_root)) is not None
        if not present:
            sidecar.write(path, pieces, limits)
            count += 1
    return count
