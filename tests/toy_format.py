"""A format of two tracks that the package knows nothing of: `x.toc` (lines "id size") beside `x.blob` (the bytes)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from playhead.formats.contract import Chunk, Rows, Sample, ScanLimits, Shard
from playhead.formats.registry import register
from playhead.formats.spec import Spec
from playhead.recipe.values import Source
from playhead.seeds import hash_text
from playhead.store import list_files, open_file
from playhead.types import UIntArray


@register("toy", extensions=(".toc",), default_id="id")
class Toy:
    def discover(self, source: Source) -> Sequence[Shard]:
        patterns = [source.path] if isinstance(source.path, str) else source.path
        return [Shard((("toc", path), ("blob", path.replace(".toc", ".blob")))) for path in list_files(patterns)]

    def scan(self, shard: Shard, spec: Spec, limits: ScanLimits) -> Iterator[Chunk]:  # noqa: ARG002
        toc = blob = 0
        with open_file(shard.path("toc")) as file:
            for line in file.read(0, file.size).splitlines(keepends=True):
                name, size = line.decode().split()
                yield Chunk(
                    1,
                    {"toc": np.array([toc], np.uint64), "blob": np.array([blob], np.uint64)},
                    {"toc": toc + len(line), "blob": blob + int(size)},
                    lengths=np.array([int(size)], np.uint32) if spec.length else None,
                    ids=np.array([hash_text(name)], np.uint64) if spec.ids else None,
                )
                toc += len(line)
                blob += int(size)

    def read(self, rows: Rows, options: Mapping[str, Any]) -> Iterable[Sample]:  # noqa: ARG002
        for line, blob in zip(rows.payloads("toc"), rows.payloads("blob"), strict=True):
            yield {"id": line.decode().split()[0], "blob": blob}

    def sidecars(self, shard: Shard, limits: ScanLimits) -> Iterable[tuple[str, Iterable[UIntArray]]]:  # noqa: ARG002
        return ()
