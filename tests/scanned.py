"""A file scanned by a format, all chunks as one, and its rows read back: for tests of one format alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from playhead.formats.contract import Chunk, Format, ScanLimits
from playhead.formats.rows import Fetch, Places, Rows, Sample, Shard
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, Track
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.store import all_files


@dataclass(frozen=True)
class Scanned:
    """The arrays of a file of one track of offsets, by what they are."""

    num_rows: int
    num_skipped: int
    arrays: dict[str, Any]
    track: Track

    @property
    def bounds(self) -> Any:
        return self.arrays[self.track.array("offsets")]

    @property
    def offsets(self) -> Any:
        return self.bounds[:-1]

    @property
    def end(self) -> int:
        return int(self.bounds[-1])

    @property
    def lengths(self) -> Any:
        return self.arrays.get(LENGTHS)

    @property
    def outputs(self) -> Any:
        return self.arrays.get(OUTPUTS)

    @property
    def ids(self) -> Any:
        return self.arrays.get(IDS)

    @property
    def columns(self) -> dict[str, Any]:
        return {unquote(name[8:]): array for name, array in self.arrays.items() if name.startswith("columns/")}


def shard_of(role: str, path: Path) -> Shard:
    return Shard(((role, str(path)),))


def scan_file(
    format: Format,  # noqa: A002
    role: str,
    path: Path,
    spec: Spec,
    limits: ScanLimits = ScanLimits(),  # noqa: B008 - a frozen value
) -> Scanned:
    return joined(list(format.scan(shard_of(role, path), spec, all_files(), limits)), role)


def joined(chunks: list[Chunk], role: str) -> Scanned:
    names = chunks[0].arrays
    arrays = {name: np.concatenate([chunk.arrays[name] for chunk in chunks]) for name in names}
    num_skipped = sum(chunk.num_skipped for chunk in chunks)
    return Scanned(sum(chunk.num_rows for chunk in chunks), num_skipped, arrays, Track(role))


def read_file(format: Format, role: str, path: Path, bounds: Any, order: Any) -> list[Sample]:  # noqa: A002
    """The rows between these bounds, in an order."""
    reader = format.open(Source(name="a", path=[str(path)]), all_files())
    return list(reader.read(rows_of(role, path, bounds, order)))


def rows_of(role: str, path: Path, bounds: Any, order: Any) -> Rows:
    files = all_files()
    places = {role: Places(bounds[order], bounds[order + 1])}
    return Rows([shard_of(role, path)] * len(order), order, places, Fetch(files, {str(path): files.stamp(str(path))}))
