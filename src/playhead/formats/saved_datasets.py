"""Datasets of Hugging Face: directories that `save_to_disk` wrote, and objects by the files that they are kept in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from playhead.errors import DataError, RecipeError
from playhead.fingerprint import digest_bytes
from playhead.formats.arrow_types import load_pyarrow
from playhead.formats.column_schema import media_features
from playhead.formats.ipc import RECORD_BATCH, batch_header, read_messages
from playhead.formats.schema import file_name
from playhead.recipe.plain import to_plain
from playhead.recipe.values import Source
from playhead.store import Files, all_files, list_files, open_file, replacing
from playhead.store.globbing import has_magic
from playhead.types import IntArray

_STATE, _SPLITS = "state.json", "dataset_dict.json"
_HARMLESS = ("drop", "select", "replace_schema_metadata", "cast")  # of columns whose types are those of the file


class SavedFiles(NamedTuple):
    """The data files of a source in order, and the file of row numbers if it has one."""

    data: list[str]
    indices: str | None


class _FileName(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    """The part of `state.json` that concerns rows; old versions kept indices too."""

    data_files: list[_FileName] = msgspec.field(name="_data_files")
    indices_files: list[_FileName] = msgspec.field(name="_indices_data_files", default_factory=list)


def saved_files(source: Source, files: Files, indices: Sequence[str]) -> SavedFiles:
    """The files of a source, whose paths may be directories of `save_to_disk`; `indices` are those that it names."""
    data: list[str] = []
    found = [*indices]
    for path in source.path:
        state = None if path.endswith(".arrow") else _state(path, files)
        if state is None:
            data.append(path)
        else:
            data += [_inside(path, file.filename) for file in state.data_files]
            found += [_inside(path, file.filename) for file in state.indices_files]
    if found and (len(found) > 1 or (not indices and len(source.path) > 1)):
        raise DataError(
            f"{source.path[0]}: a source with indices is one dataset",
            found=f"{len(found)} files of indices, {len(source.path)} paths",
            fix="make a source of each, or save them by `flatten_indices()` and `save_to_disk`",
        )
    return SavedFiles(list_files(files, data), found[0] if found else None)


def is_saved(path: str, files: Files) -> bool:
    """Whether a path is a directory that `save_to_disk` wrote."""
    return not has_magic(path) and _state(path, files) is not None


def _state(path: str, files: Files) -> _State | None:
    """The state of a saved dataset; None where the path is not a directory of one."""
    file = _read(f"{path}/{_STATE}", files)
    if file is None:
        splits = _read(f"{path}/{_SPLITS}", files)
        if splits is not None:
            raise DataError(
                f"{path}: holds several splits",
                found=splits[:200].decode("utf-8", "replace"),
                fix="name one of them in the path, or several as separate sources",
            )
        return None
    try:
        return msgspec.json.decode(file, type=_State)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}/{_STATE}: broken", found=str(error), fix="save the dataset again") from error


def _read(path: str, files: Files) -> bytes | None:
    try:
        if not files.list(path):
            return None
    except DataError:
        return None
    file = open_file(files, path)
    return file.read(0, file.size)


def _inside(directory: str, name: str) -> str:
    if not name or "/" in name or name in (".", ".."):
        raise DataError(
            f"{directory}/{_STATE}: names a file in another directory", found=repr(name), expected="a plain name"
        )
    return f"{directory}/{name}"


def with_files(source: Mapping[str, Any], indices_dir: Path) -> dict[str, Any]:
    """A source of a recipe whose `path` is a `datasets.Dataset`, by the files that it is kept in.

    Rows chosen by `select`, `filter`, `shuffle` and `train_test_split` are taken over, in their order; where that order
    is kept in memory only, it is written to a file in `indices_dir`. A dataset is refused whose rows are in memory
    only, or are not those of its files (after `rename_column`, `cast_column` and the like, or with a transform).
    """
    dataset, name = source["path"], str(source.get("name", ""))
    if not hasattr(dataset, "data") or not hasattr(dataset, "_indices"):
        raise RecipeError(
            f'source "{name}": not a dataset of rows',
            found=type(dataset).__name__,
            expected="a datasets.Dataset",
            fix="give one of its splits or, for a streamed dataset, the files themselves",
        )
    if source.get("format", "arrow") != "arrow":
        raise RecipeError(f'source "{name}": a dataset is read from its Arrow files', fix="remove `format`")
    if dataset.format["type"] == "custom":
        raise _not_in_files(name, "a transform")
    if not len(dataset):
        raise RecipeError(f'source "{name}": the dataset has no rows', fix="leave the source out, or choose other rows")
    pieces = _pieces(dataset, name)
    files = list(dict.fromkeys(piece.path for piece in pieces))
    options: dict[str, Any] = {"columns": list(dataset.column_names)}
    options["features"] = media_features(dataset.features.to_dict())
    indices = _indices_path(dataset, pieces, files)
    if indices is None:
        rows = _rows(dataset, pieces, files)
        indices = None if rows is None else _write_rows(rows, name, indices_dir)
    if indices is not None:
        options["indices"] = indices
    found, given = to_plain({"format": "arrow", "path": files, "options": options}), source.get("options", {})
    if isinstance(given, Mapping):  # what is none is refused with the rest of the recipe
        given = {**found["options"], **given}
    return {**source, **found, "options": given}


class _FileRows(NamedTuple):
    """Consecutive rows of a file; the whole file unless `is_part`."""

    path: str
    first: int
    num_rows: int
    is_part: bool


def _pieces(dataset: Any, name: str) -> list[_FileRows]:
    """The rows of a dataset's table, before its indices."""
    pieces = []
    for tables in getattr(dataset.data, "blocks", [[dataset.data]]):
        table = tables[0]
        path, steps = getattr(table, "path", None), getattr(table, "replays", None)
        if path is None or steps is None or len(tables) > 1:
            raise _not_in_files(name, "rows that are in memory, or of several tables side by side")
        first, is_part = 0, False
        for step, arguments, named in steps:
            if step == "slice":
                first, is_part = first + _offset(*arguments, **named), True
            elif step not in _HARMLESS:
                raise _not_in_files(name, f"a table changed by `{step}`")
        pieces.append(_FileRows(str(Path(path).absolute()), first, table.num_rows, is_part))
        if not _same_types(pieces[-1].path, table.schema):
            raise _not_in_files(name, "columns of other types than in the files")
    return pieces


def _same_types(path: str, schema: Any) -> bool:
    pa = load_pyarrow()
    file = open_file(all_files(), path)
    first = next(read_messages(file))
    stored = pa.ipc.read_schema(pa.py_buffer(file.read(first.first, first.end - first.first)))
    return all(column.name in stored.names and stored.field(column.name).type == column.type for column in schema)


def _offset(offset: int = 0, length: int | None = None) -> int:  # noqa: ARG001 - the table knows its rows
    return offset


def _not_in_files(name: str, found: str) -> RecipeError:
    return RecipeError(
        f'source "{name}": the rows of the dataset are not those of its files',
        found=found,
        fix="save it with `save_to_disk(path)`, and name that path in the recipe, with `format: arrow`",
    )


def _indices_path(dataset: Any, pieces: Sequence[_FileRows], files: Sequence[str]) -> str | None:
    """The file of the indices of a dataset, if it can be used unchanged over whole files."""
    table = dataset._indices  # noqa: SLF001 - `datasets` has no public name for it
    whole = [piece.path for piece in pieces] == files and not any(piece.is_part for piece in pieces)
    if table is None or not whole or getattr(table, "path", None) is None or table.replays:
        return None
    return str(Path(table.path).absolute())


def _rows(dataset: Any, pieces: Sequence[_FileRows], files: Sequence[str]) -> IntArray | None:
    """The rows of a dataset as numbers over all rows of its files; None if they are all rows in order."""
    table = dataset._indices  # noqa: SLF001
    if table is None and [piece.path for piece in pieces] == list(files) and not any(piece.is_part for piece in pieces):
        return None
    begins = _first_rows(files)
    parts = [
        np.arange(begins[piece.path] + piece.first, begins[piece.path] + piece.first + piece.num_rows)
        for piece in pieces
    ]
    rows = np.concatenate(parts)
    return rows if table is None else rows[table.column(0).to_numpy().astype(np.int64)]


def _first_rows(paths: Sequence[str]) -> Mapping[str, int]:
    """The number of rows in the files before each."""
    files, found, total = all_files(), dict[str, int](), 0
    for path in paths:
        found[path] = total
        messages = (message for message in read_messages(open_file(files, path)) if message.kind == RECORD_BATCH)
        total += sum(batch_header(message, path).num_rows for message in messages)
    return found


def _write_rows(rows: IntArray, name: str, directory: Path) -> str:
    """A file of row numbers, named by their digest."""
    pa = load_pyarrow()
    key = digest_bytes(rows.tobytes())[:16]
    path = directory.absolute() / f"{file_name(name)}-{key}.arrow"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        table = pa.table({"indices": rows.astype(np.uint64)})
        with replacing(path) as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    return str(path)
