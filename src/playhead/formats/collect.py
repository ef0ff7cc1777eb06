"""Rows one by one into columns: the obvious way, which every fast way must agree with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from playhead.errors import DataError
from playhead.formats.contract import Chunk
from playhead.formats.lengths import MISSING, length_function, whole_number
from playhead.formats.spec import Spec
from playhead.recipe.values import Length
from playhead.seeds import hash_text
from playhead.types import Array, LengthArray, UIntArray


class Row(Protocol):
    """A row as a scan sees it."""

    @property
    def where(self) -> str: ...

    def get(self, field: str) -> Any: ...

    def size(self, field: str | None) -> int: ...

    def sample(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Collected:
    """The columns of some rows, as a chunk takes them."""

    lengths: LengthArray | None
    outputs: LengthArray | None
    columns: Mapping[str, Array]
    ids: UIntArray | None

    def chunk(self, num_rows: int, offsets: Mapping[str, UIntArray], ends: Mapping[str, int]) -> Chunk:
        return Chunk(num_rows, offsets, ends, self.lengths, self.outputs, self.columns, self.ids)


class Collector:
    """Takes rows one by one, then gives their columns."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._length = None if spec.length is None else _reader(spec.length)
        self._output = None if spec.output_length is None else _reader(spec.output_length)
        self._matches = [(match.column, match.name, match.compile()) for match in spec.matches]
        self._clear()

    def add(self, row: Row) -> None:
        if self._length is not None:
            self._lengths.append(self._length(row))
        if self._output is not None:
            self._outputs.append(self._output(row))
        for name in self._spec.columns:
            self._columns[name].append(number(row.get(name), name, row.where))
        for column, field, accepts in self._matches:
            self._columns[column].append(accepts(row.get(field)))
        if self._spec.ids is not None:
            self._ids.append(hash_text(identity(row.get(self._spec.ids), self._spec.ids, row.where)))

    def take(self) -> Collected:
        """The columns of the rows added since the last time."""
        columns: dict[str, Array] = {name: np.array(self._columns[name], np.uint8) for name, _, _ in self._matches}
        with np.errstate(over="ignore"):
            for name in self._spec.columns:
                columns[name] = np.array(self._columns[name], np.float64).astype(np.float32)
        collected = Collected(
            None if self._length is None else np.array(self._lengths, dtype=np.uint32),
            None if self._output is None else np.array(self._outputs, dtype=np.uint32),
            columns,
            None if self._spec.ids is None else np.array(self._ids, dtype=np.uint64),
        )
        self._clear()
        return collected

    def _clear(self) -> None:
        self._lengths: list[int] = []
        self._outputs: list[int] = []
        self._ids: list[int] = []
        names = (*self._spec.columns, *(name for name, _, _ in self._matches))
        self._columns: dict[str, list[float]] = {name: [] for name in names}


def number(value: Any, name: str, where: str) -> float:
    """A value of a numeric column; a missing one is NaN, which no range keeps."""
    if value is MISSING or value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(
            f'{where}: field "{name}" is not a number',
            found=repr(value)[:80],
            expected="a number, null, or no such field",
        )
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def identity(value: Any, name: str, where: str) -> str:
    """A sample's id as text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(
            f'{where}: no id in field "{name}"',
            found=repr(value)[:80],
            expected="a string or a whole number",
        )
    return str(value)


def _reader(length: Length) -> Callable[[Row], int]:
    if length.function is not None:
        function, name = length_function(length), length.function

        def by_function(row: Row) -> int:
            sample = row.sample()
            try:
                value = function(sample)
            except Exception as error:
                raise DataError(
                    f"{row.where}: length function {name} failed",
                    found=f"{type(error).__name__}: {error}",
                    expected="a number for every sample",
                ) from error
            return whole_number(value, length.unit, f"the result of {name}", row.where)

        return by_function
    if length.unit == "bytes":
        return lambda row: whole_number(row.size(length.field), "bytes", "the size", row.where)
    field = length.field
    assert field is not None
    return lambda row: whole_number(row.get(field), length.unit, f'field "{field}"', row.where)
