"""Columns of Arrow memory as rows: what the formats `parquet` and `arrow` share.

Values are Python values, as Arrow returns them, except lists of numbers, which are numpy arrays, and timestamps and
durations in nanoseconds, which are numpy values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from playhead.errors import DataError
from playhead.formats.arrow_types import (
    is_list,
    is_number,
    is_text,
    is_text_or_bytes,
    load_pyarrow,
    offsets_type,
    without_views,
)
from playhead.formats.column_schema import MediaMaker
from playhead.formats.rows import Sample
from playhead.types import Array, IntArray

# The values at some rows of a column, in the requested order.
Column = Callable[[IntArray], list[Any]]


@contextmanager
def broken_as_data_errors(path: str, part: str) -> Iterator[None]:
    """Convert errors of Arrow in a part of a file to a DataError that names it; storage errors pass unchanged."""
    try:
        yield
    except refusals() as error:
        raise as_data_error(error, path, part) from error


def refusals() -> tuple[type[Exception], ...]:
    """The exceptions that broken bytes of a file can raise."""
    return DataError, load_pyarrow().ArrowException, OSError, OverflowError


def as_data_error(error: Exception, path: str, part: str) -> DataError:
    if isinstance(error, DataError):
        return error if path in error.problem else error.at(f"{path}, {part}")
    if isinstance(error, load_pyarrow().ArrowNotImplementedError):
        return DataError(
            f"{path}, {part}: this version of pyarrow cannot read it",
            found=f"pyarrow {load_pyarrow().__version__}: {' '.join(str(error).split())[:300]}",
            fix="use a later one, leave the column out with `options: {columns: [...]}`, or write it in another type",
        )
    return DataError(
        f"{path}, {part}: broken",
        found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        fix="restore the file, or write it again",
    )


K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[K, V]):
    """An LRU cache bounded by count and bytes; it holds at least `least` values, whatever their size.

    Law: a value that several threads ask for at once is loaded by one of them; the others wait for it.
    """

    def __init__(self, most: int, most_bytes: int | None = None, least: int = 1) -> None:
        self._most, self._most_bytes, self._least = most, most_bytes, least
        self._found: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._loading: dict[K, Future[V]] = {}
        self._num_bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: K) -> bool:
        return key in self._found

    def loaded(self, keys: Iterable[K], load: Callable[[list[K]], Iterable[tuple[V, int]]]) -> list[V]:
        """The values of some keys. `load` is called with those that are missing, and gives each with its bytes."""
        wanted, values = [*keys], dict[K, V]()
        while missing := [key for key in wanted if key not in values]:
            own, others = self._claimed(missing, values)
            if own:
                self._load(own, load, values)
            for key, other in others.items():  # not before its own are loaded: threads cannot wait for each other
                with suppress(CancelledError):  # it failed there: try again here
                    values[key] = other.result()
        return [values[key] for key in wanted]

    def _claimed(self, keys: Iterable[K], values: dict[K, V]) -> tuple[dict[K, Future[V]], dict[K, Future[V]]]:
        """Adds the values that are there; returns what this thread is to load, and what others are loading."""
        own, others = dict[K, Future[V]](), dict[K, Future[V]]()
        with self._lock:
            for key in keys:
                if key in self._found:
                    self._found.move_to_end(key)
                    values[key] = self._found[key][0]
                elif key in self._loading:
                    others[key] = self._loading[key]
                else:
                    own[key] = self._loading[key] = Future()
        return own, {key: other for key, other in others.items() if key not in own}

    def _load(
        self, own: dict[K, Future[V]], load: Callable[[list[K]], Iterable[tuple[V, int]]], values: dict[K, V]
    ) -> None:
        left = [*own]
        try:
            for key, (value, num_bytes) in zip(own, load([*own]), strict=True):
                values[key] = value
                with self._lock:
                    self._make_room(num_bytes)
                    self._found[key] = value, num_bytes
                    self._num_bytes += num_bytes
                    del self._loading[key]
                left.remove(key)
                own[key].set_result(value)
        finally:
            for key in left:
                with self._lock:
                    del self._loading[key]
                own[key].cancel()

    def make_room(self) -> None:
        """Evict values until one more fits."""
        with self._lock:
            self._make_room(0)

    def _make_room(self, num_bytes: int) -> None:
        while self._found and self._is_full(num_bytes):
            _, (_, dropped) = self._found.popitem(last=False)
            self._num_bytes -= dropped

    def _is_full(self, num_bytes: int) -> bool:
        if len(self._found) >= self._most:
            return True
        over = self._most_bytes is not None and self._num_bytes + num_bytes > self._most_bytes
        return over and len(self._found) >= self._least


def with_nulls(column: Column, valid: Array | None) -> Column:
    """The column with None where a row has no value."""
    if valid is None:
        return column

    def found(rows: IntArray) -> list[Any]:
        values = column(rows)
        for i in np.flatnonzero(~valid.take(rows)).tolist():
            values[i] = None
        return values

    return found


def column_of(array: Any) -> Column:
    """The rows of an array in memory.

    Laws: it returns what `array.take(rows).to_pylist()` returns, with the exceptions above; an inconsistent array is
    refused, here or with the row.
    """
    pa = load_pyarrow()
    types, kind = pa.types, without_views(array.type)
    if isinstance(array, pa.ExtensionArray):
        return column_of(array.storage)
    if kind != array.type:
        array.validate(full=True)
        return column_of(array.cast(kind))
    if types.is_dictionary(kind):
        return _dictionary_column(array)
    if types.is_struct(kind):
        return struct_column([kind.field(i).name for i in range(kind.num_fields)], _fields(array), validity(array))
    if is_text_or_bytes(kind):
        bounds, data = _bounds(array), _bytes(array.buffers()[2])
        check_bounds(bounds, len(data))
        return with_nulls(text_column(bounds, data) if is_text(kind) else bytes_column(bounds, data), validity(array))
    if is_list(kind) and is_number(kind.value_type) and array.values.null_count == 0:
        bounds, values = _bounds(array), numbers_of(array.values)
        check_bounds(bounds, len(values))
        return with_nulls(list_column(bounds, values), validity(array))
    if is_number(kind) and array.null_count == 0:
        return _plain_column(numbers_of(array))
    if types.is_null(kind):
        return lambda rows: [None] * len(rows)
    array.validate(full=True)
    return lambda rows: _general(array.take(pa.array(rows)))


def _general(array: Any) -> list[Any]:
    """The values of a few rows of any other type."""
    pa = load_pyarrow()
    types, kind = pa.types, array.type
    if (is_list(kind) or types.is_fixed_size_list(kind)) and is_number(kind.value_type):
        return [_numbers(row) for row in array]
    if (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "ns":
        found = array.to_numpy(zero_copy_only=False)
        return [None if np.isnat(value) else value for value in found]
    values: list[Any] = array.to_pylist()
    return values


def _numbers(row: Any) -> Any:
    """A list of numbers as an array, unless one of them is missing."""
    if row.values is None or row.values.null_count:
        return row.as_py()
    return numbers_of(row.values).copy()


def _dictionary_column(array: Any) -> Column:
    """A dictionary-encoded column: values are not repeated in memory, however many rows have them."""
    values, numbers = column_of(array.dictionary), numbers_of(array.indices.fill_null(0)).astype(np.int64)
    if array.null_count == len(array):
        return lambda rows: [None] * len(rows)
    if numbers.min() < 0 or numbers.max() >= len(array.dictionary):
        raise DataError("a row references a value that its dictionary does not have", fix="restore the file")
    return with_nulls(lambda rows: values(numbers.take(rows)), validity(array.indices))


def _fields(array: Any) -> list[Column]:
    return [column_of(array.field(i)) for i in range(array.type.num_fields)]


def struct_column(names: Sequence[str], columns: Sequence[Column], valid: Array | None) -> Column:
    def found(rows: IntArray) -> list[Any]:
        return as_rows(names, [column(rows) for column in columns], len(rows))

    return with_nulls(found, valid)


def as_samples(
    names: Sequence[str], columns: Sequence[list[Any]], count: int, media: Mapping[str, MediaMaker]
) -> list[Sample]:
    """The values of columns as rows, with those that hold media as media."""
    if media:
        found = zip(names, columns, strict=True)
        columns = [list(map(media[name], values)) if name in media else values for name, values in found]
    return as_rows(names, columns, count)


def as_rows(names: Sequence[str], columns: Sequence[list[Any]], count: int) -> list[Sample]:
    if not columns:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def text_column(bounds: Array, data: memoryview) -> Column:
    def found(rows: IntArray) -> list[Any]:
        return [decoded(data[first:end]) for first, end in zip(*ranges_of(bounds, rows), strict=True)]

    return found


def decoded(data: Any) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError("a text is not UTF-8", found=str(error)) from None


def bytes_column(bounds: Array, data: memoryview) -> Column:
    def found(rows: IntArray) -> list[Any]:
        return [bytes(data[first:end]) for first, end in zip(*ranges_of(bounds, rows), strict=True)]

    return found


def list_column(bounds: Array, values: Array) -> Column:
    def found(rows: IntArray) -> list[Any]:
        return [values[first:end].copy() for first, end in zip(*ranges_of(bounds, rows), strict=True)]

    return found


def _plain_column(values: Array) -> Column:
    return lambda rows: values.take(rows).tolist()


def ranges_of(bounds: Array, rows: IntArray) -> tuple[list[int], list[int]]:
    """Where rows begin and end in their values."""
    if len(rows) == 1:  # in a global shuffle most batches are read one row at a time
        first, end = bounds[rows[0] : rows[0] + 2].tolist()
        return [first], [end]
    return bounds.take(rows).tolist(), bounds.take(rows + 1).tolist()


def check_bounds(bounds: Array, size: int) -> None:
    """Refuse bounds of rows that are not in order, or not inside their values."""
    if len(bounds) and (bounds[0] < 0 or bounds[-1] > size or (np.diff(bounds) < 0).any()):
        raise DataError(
            "the bounds of the rows do not match the values",
            found=f"bounds from {int(bounds.min()):,} to {int(bounds.max()):,}",
            expected=f"bounds in order, up to {size:,}",
            fix="restore the file, or write it again",
        )


def validity(array: Any) -> Array | None:
    """A mask of the rows that have a value; None if all have."""
    if array.null_count == 0:
        return None
    found: Array = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def numbers_of(array: Any) -> Array:
    """The numbers of an array without nulls."""
    found: Array = array.to_numpy(zero_copy_only=False)
    return found


def _bounds(array: Any) -> Array:
    """Where each row begins in the values, and where the last ends."""
    kind = offsets_type(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, kind)
    bounds = np.frombuffer(buffer, kind)[array.offset : array.offset + len(array) + 1]
    if len(bounds) != len(array) + 1:
        raise DataError("the bounds of the rows are truncated", found=f"{len(bounds):,} for {len(array):,} rows")
    return bounds


def _bytes(buffer: Any) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)
