"""A format of two tracks that the package knows nothing of: `x.toc` (lines "id size") beside `x.blob` (the bytes)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from playhead.errors import DataError
from playhead.formats.contract import Chunk, RowReader, ScanLimits
from playhead.formats.registry import register
from playhead.formats.rows import Rows, Sample, Shard
from playhead.formats.schema import IDS, LENGTHS, Track
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.seeds import hash_text
from playhead.store import Files, list_files, open_file

TOC, BLOB = Track("toc").array("offsets"), Track("blob").array("offsets")


@register("toy", extensions=(".toc",), default_id="id")
class Toy:
    def discover(self, source: Source, files: Files) -> Sequence[Shard]:
        paths = list_files(files, source.path)
        return [Shard((("toc", path), ("blob", path.replace(".toc", ".blob")))) for path in paths]

    def scan(self, shard: Shard, spec: Spec, files: Files, limits: ScanLimits) -> Iterator[Chunk]:  # noqa: ARG002
        toc = blob = 0
        for data in open_file(files, shard.path("toc")).pieces():
            for line in data.splitlines(keepends=True):
                name, _, size = line.decode(errors="replace").strip().partition(" ")
                if not size.isdecimal() or not line.endswith(b"\n"):
                    raise DataError(f"{shard.name}, byte {toc}: not a row", found=repr(line))
                yield _chunk(1, toc, blob, spec, [int(size)], [hash_text(name)])
                toc += len(line)
                blob += int(size)
        yield _chunk(0, toc, blob, spec, [], [])

    def open(self, source: Source, files: Files) -> RowReader:  # noqa: ARG002
        return _ToyReader()


class _ToyReader:
    def read(self, rows: Rows) -> Iterable[Sample]:
        for line, blob in zip(rows.payloads("toc"), rows.payloads("blob"), strict=True):
            yield {"id": bytes(line).decode().split()[0], "blob": bytes(blob)}


def _chunk(num_rows: int, toc: int, blob: int, spec: Spec, lengths: list[int], ids: list[int]) -> Chunk:
    arrays = {TOC: np.array([toc], np.uint64), BLOB: np.array([blob], np.uint64)}
    if spec.length is not None:
        arrays[LENGTHS] = np.array(lengths, np.uint32)
    if spec.ids is not None:
        arrays[IDS] = np.array(ids, np.uint64)
    return Chunk(num_rows, arrays)
