"""Small sources for tests: files to prepare, and recipes over them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from playhead.index.table import Table, open_table
from playhead.recipe.tree import leaves
from playhead.recipe.values import Fixed, Length, Recipe, Source


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_tar(path: Path, members: Sequence[tuple[str, bytes]], kind: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=kind) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def recipe_over(folder: Path, pattern: str = "*.jsonl", **source: Any) -> Recipe:
    """A recipe of one source over the files of a folder, its length in field `n` unless said otherwise."""
    batching = source.pop("batching", Fixed(size=2))
    indexes_root = source.pop("indexes_root", None)
    source = {"name": "s", "path": [str(folder / pattern)], "length": Length(field="n")} | source
    return Recipe(
        sources=[Source(**source)],
        batching=batching,
        cache_dir=str(folder / "cache"),
        indexes_root=indexes_root,
    )


def table_of(recipe: Recipe) -> Table:
    return open_table(leaves(recipe)[0], recipe)


def all_lengths(table: Table) -> list[int]:
    return table.lengths_of(np.arange(table.num_rows)).tolist()


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
