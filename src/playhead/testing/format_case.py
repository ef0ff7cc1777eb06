"""Files of a format on trial: written to a directory or kept in memory, indexed, and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from playhead.formats.rows import Fetch, Rows, Sample
from playhead.index.layout import Layout, layout_of
from playhead.index.opened import Index, open_index
from playhead.prepare import prepare
from playhead.read.row_decoder import read_rows
from playhead.recipe.storage import files_of
from playhead.recipe.tree import leaves
from playhead.recipe.values import Recipe
from playhead.store import Access, Buffer, Files, MemoryFiles, Ranges, Stamp, with_views
from playhead.store.memory import SCHEME

Read = Callable[[Sequence[int]], list[Sample]]


class FilesOfPaths:
    """Files in memory under paths of a disk that has none of them: only what goes through `Files` finds them."""

    def __init__(self) -> None:
        self._memory = MemoryFiles()

    def write(self, path: str, data: bytes) -> None:
        self._memory.write(SCHEME + path, data)

    def access(self, path: str) -> Access:
        return self._memory.access(SCHEME + path)

    def list(self, pattern: str) -> Sequence[str]:
        return [path.removeprefix(SCHEME) for path in self._memory.list(SCHEME + pattern)]

    def stamp(self, path: str) -> Stamp:
        return self._memory.stamp(SCHEME + path)

    def read(
        self, path: str, stamp: Stamp | None, ranges: Ranges, into: Sequence[memoryview] | None = None
    ) -> Sequence[Buffer]:
        return self._memory.read(SCHEME + path, stamp, ranges, into)


class FormatCase:
    """Files by their names, as a source of a recipe. They are on disk, unless a storage for them is given."""

    def __init__(
        self,
        directory: Path,
        source: Mapping[str, Any],
        files: Mapping[str, bytes],
        storage: FilesOfPaths | None = None,
    ) -> None:
        self.directory, self.names, self._storage = directory, tuple(files), storage
        for name, data in files.items():
            path = directory / name
            if storage is not None:
                storage.write(str(path), data)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        values = {"sources": [{"name": "contract", **source}], "batching": {"type": "fixed", "size": 1}}
        cache_dir = str(directory.with_name(f"{directory.name}-cache"))
        self._recipe = Recipe.parse({**values, "sequence": None, "cache_dir": cache_dir}, base_dir=directory)

    @property
    def layout(self) -> Layout:
        return layout_of(leaves(self._recipe)[0], self._recipe)

    def index(self, **how: Any) -> Index:
        prepare(self._recipe, files=self._storage, **how)
        index = open_index(self.layout.directory)
        assert index is not None
        return index

    def reader(self, index: Index) -> Read:
        """A new reader, which returns the samples of raw rows."""
        layout, files = self.layout, self._files()
        reader = layout.registered.format.open(layout.leaf.source, files)

        def read(rows: Sequence[int]) -> list[Sample]:
            return read_rows(reader.read, _located(index, rows, Fetch(files, index.stamps)))

        return read

    def name_of(self, path: str) -> str:
        return str(Path(path).relative_to(self.directory))

    def _files(self) -> Files:
        if self._storage is None:
            return files_of(self._recipe, "refuse")
        return with_views(self._storage, self._recipe.cache_dir, "refuse")


def _located(index: Index, rows: Sequence[int], fetch: Fetch) -> Rows:
    return index.locate(np.array(rows, dtype=np.int64), fetch)
