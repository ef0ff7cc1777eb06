"""Rows one by one into columns: the reference implementation, which every fast path must agree with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from playhead.errors import DataError
from playhead.formats.lengths import MISSING
from playhead.formats.row_lengths import Place, Row, RowLengths
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, column
from playhead.formats.spec import Spec
from playhead.seeds import hash_text
from playhead.types import Array

OWN_ID = "id"
ROW_ID = "__id__"  # a row's default id, if the recipe names no field: its own id or, without one, file and number


class Collector:
    """Takes rows one by one, then returns their columns. Errors of `add` do not name the row: the caller knows where it
    is. Those of `take` name the `place` that was given with it.

    Where the recipe names no ids, rows must be all those of a file, in order; `path` is the file.
    """

    def __init__(self, spec: Spec, path: str = "") -> None:
        self._spec, self._path, self._number = spec, path, 0
        lengths = ((LENGTHS, spec.length), (OUTPUTS, spec.output_length))
        how = (spec.audio_changes, spec.tokenizers, spec.chat)
        self._lengths = {name: RowLengths(length, *how) for name, length in lengths if length is not None}
        self._matches = [(match.column, match.name, match.compile()) for match in spec.matches]
        self._clear()

    def add(self, row: Row, place: Place | None = None) -> None:
        for lengths in self._lengths.values():
            lengths.add(row, place)
        for name in self._spec.columns:
            self._columns[name].append(number(row.get(name), name))
        for name, field, accepts in self._matches:
            self._columns[name].append(accepts(row.get(field)))
        if self._spec.ids is not None:
            self._ids.append(hash_text(self._id(row, self._spec.ids)))
        self._number += 1

    def _id(self, row: Row, field: str) -> str:
        found = row.get(field)
        if field != ROW_ID or found is not MISSING:
            return identity(found, field)
        found = row.get(OWN_ID)
        return own_id({} if found is MISSING else {OWN_ID: found}) or file_and_row(self._path, self._number)

    def take(self) -> dict[str, Array]:
        """The columns of the rows added since the last time, by their names in the schema."""
        arrays: dict[str, Array] = {name: lengths.take() for name, lengths in self._lengths.items()}
        with np.errstate(over="ignore"):
            for name in self._spec.columns:
                arrays[column(name)] = np.array(self._columns[name], np.float64).astype(np.float32)
        for name, _, _ in self._matches:
            arrays[column(name)] = np.array(self._columns[name], np.uint8)
        if self._spec.ids is not None:
            arrays[IDS] = np.array(self._ids, dtype=np.uint64)
        self._clear()
        return arrays

    def _clear(self) -> None:
        self._ids: list[int] = []
        names = (*self._spec.columns, *(name for name, _, _ in self._matches))
        self._columns: dict[str, list[float]] = {name: [] for name in names}


def number(value: Any, name: str) -> float:
    """A value of a numeric column; a missing one is NaN, which no range keeps."""
    if value is MISSING or value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(
            f'field "{name}" is not a number',
            found=repr(value)[:80],
            expected="a number, null, or no such field",
        )
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def own_id(row: Mapping[str, Any]) -> str | None:
    """The id in a row's own `id` field, if any."""
    found = row.get(OWN_ID)
    return None if found is None else identity(found, OWN_ID)


def file_and_row(path: str, row: int) -> str:
    """The id of a row without one: the name of its file, and its number there."""
    return f"{path.rpartition('/')[2]}:{row}"


def identity(value: Any, name: str) -> str:
    """A sample's id as text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(
            f'no id in field "{name}"',
            found=repr(value)[:80],
            expected="a string or a whole number",
        )
    return str(value)
