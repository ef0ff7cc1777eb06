"""Rows one by one into columns: the obvious way, which every fast way must agree with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from playhead.errors import DataError
from playhead.formats.lengths import MISSING, whole_number
from playhead.formats.rows import Sample
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, column
from playhead.formats.spec import Spec
from playhead.formats.tokens import Tokens
from playhead.recipe.imports import resolve_function
from playhead.recipe.values import Length
from playhead.seeds import hash_text
from playhead.types import Array, LengthArray


class Row(Protocol):
    """A row as a scan sees it. One in which a text may look like a number has `text` too, which gives it as it is."""

    def get(self, field: str) -> Any: ...

    def size(self, field: str | None) -> int: ...

    def sample(self) -> Sample: ...


class Collector:
    """Takes rows one by one, then gives their columns. Its errors do not name the row: the caller knows where it is."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        lengths = ((LENGTHS, spec.length), (OUTPUTS, spec.output_length))
        self._lengths = {name: _Lengths(length) for name, length in lengths if length is not None}
        self._matches = [(match.column, match.name, match.compile()) for match in spec.matches]
        self._clear()

    def add(self, row: Row) -> None:
        for lengths in self._lengths.values():
            lengths.add(row)
        for name in self._spec.columns:
            self._columns[name].append(number(row.get(name), name))
        for name, field, accepts in self._matches:
            self._columns[name].append(accepts(row.get(field)))
        if self._spec.ids is not None:
            self._ids.append(hash_text(identity(row.get(self._spec.ids), self._spec.ids)))

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


class _Lengths:
    """The lengths of some rows. Tokens are counted for many rows at once, when all are there."""

    def __init__(self, length: Length) -> None:
        self._tokens = None if length.tokenizer is None else Tokens(length)
        self._read = _reader(length) if self._tokens is None else self._text
        self._found: list[Any] = []

    def add(self, row: Row) -> None:
        self._found.append(self._read(row))

    def take(self) -> LengthArray:
        found, self._found = self._found, []
        return np.array(found, dtype=np.uint32) if self._tokens is None else self._tokens.counts(found)

    def _text(self, row: Row) -> Any:
        assert self._tokens is not None
        return self._tokens.text(getattr(row, "text", row.get))


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


def identity(value: Any, name: str) -> str:
    """A sample's id as text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(
            f'no id in field "{name}"',
            found=repr(value)[:80],
            expected="a string or a whole number",
        )
    return str(value)


def characters(value: Any, name: str) -> int:
    """The number of characters of a text."""
    if not isinstance(value, str):
        raise DataError(f'field "{name}" is not a text', found=repr(value)[:80], expected="a text")
    return len(value)


def _reader(length: Length) -> Callable[[Row], Any]:
    if length.function is not None:
        function, name = resolve_function(length.function), length.function

        def by_function(row: Row) -> int:
            sample = row.sample()
            try:
                value = function(sample)
            except Exception as error:
                raise DataError(
                    f"length function {name} failed",
                    found=f"{type(error).__name__}: {error}",
                    expected="a number for every sample",
                ) from error
            return whole_number(value, length.unit, f"the result of {name}")

        return by_function
    if length.unit == "bytes":
        return lambda row: whole_number(row.size(length.field), "bytes", "the size")
    field = length.field
    assert field is not None
    if length.unit == "characters":
        return lambda row: characters(getattr(row, "text", row.get)(field), field)
    return lambda row: whole_number(row.get(field), length.unit, f'field "{field}"')
