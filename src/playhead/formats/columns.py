"""Columns of Arrow memory as rows: what the formats `parquet` and `arrow` share.

Values are Python values, as Arrow itself gives them, but for lists of numbers, which are numpy arrays, and for
timestamps and durations in nanoseconds, which are numpy's own. Columns of recordings and images become `Media`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct, field

from playhead.errors import DataError, RecipeError
from playhead.formats.media import Media, MediaKind
from playhead.formats.rows import Sample
from playhead.types import Array, IntArray

# The values at some rows of a column, in the order asked for.
Column = Callable[[IntArray], list[Any]]

_FEATURES = b"huggingface"
_MEDIA_FEATURES: dict[str, MediaKind] = {
    "Audio": "audio",
    "Image": "image",
}  # by the type of a feature in Hugging Face's metadata


class ColumnOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """`columns` are the ones to read, all by default; `audio` are those that hold recordings, `image` images.

    A column of Hugging Face's type Audio or Image needs no mention.
    """

    columns: list[str] | None = None
    audio: list[str] = field(default_factory=list)
    image: list[str] = field(default_factory=list)


def load_pyarrow() -> Any:
    """The package, imported where it is used."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise RecipeError(
            "the formats `parquet` and `arrow` need the package pyarrow",
            found=str(error),
            fix="pip install 'playhead[arrow]'",
        ) from None
    return pa


@contextmanager
def broken_as_data_errors(path: str, part: str) -> Iterator[None]:
    """What Arrow refuses in a part of a file is a DataError that names it; what fails in the storage stays as it is."""
    try:
        yield
    except refusals() as error:
        raise as_data_error(error, path, part) from error


def refusals() -> tuple[type[Exception], ...]:
    """What is raised where the bytes of a file are not what they should be."""
    return DataError, load_pyarrow().ArrowException, OSError, OverflowError


def as_data_error(error: Exception, path: str, part: str) -> DataError:
    if isinstance(error, DataError):
        return error if path in error.problem else error.at(f"{path}, {part}")
    return DataError(
        f"{path}, {part}: broken",
        found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        fix="restore the file, or write it again",
    )


K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[K, V]):
    """The values used last, at most so many of them, and of at most so many bytes together, but for `least` of them."""

    def __init__(self, most: int, most_bytes: int | None = None, least: int = 1) -> None:
        self._most, self._most_bytes, self._least = most, most_bytes, least
        self._found: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> V | None:
        found = self._found.get(key)
        if found is None:
            return None
        self._found.move_to_end(key)
        return found[0]

    def add(self, key: K, value: V, num_bytes: int = 0) -> V:
        self.make_room(num_bytes)
        self._found[key] = value, num_bytes
        self._num_bytes += num_bytes
        return value

    def make_room(self, num_bytes: int = 0) -> None:
        """Drop what one more value of so many bytes leaves no room for."""
        while self._found and self._is_full(num_bytes):
            _, (_, dropped) = self._found.popitem(last=False)
            self._num_bytes -= dropped

    def _is_full(self, num_bytes: int) -> bool:
        if len(self._found) >= self._most:
            return True
        over = self._most_bytes is not None and self._num_bytes + num_bytes > self._most_bytes
        return over and len(self._found) >= self._least


def chosen_columns(path: str, schema: Any, options: ColumnOptions) -> list[str]:
    """The names of the columns to read, each of a type that can be read. Names that are missing are refused."""
    names: list[str] = list(schema.names)
    if len({*names}) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f'{path}: two columns are called "{twice}"', expected="a name of its own for each column")
    for name in (*(options.columns or ()), *options.audio, *options.image):
        if name not in names:
            raise missing_column(path, name, names)
    chosen = names if options.columns is None else [name for name in names if name in options.columns]
    for name in chosen:
        _check_type(path, name, schema.field(name).type)
    if not chosen:
        raise DataError(f"{path}: has no columns", expected="at least one")
    return chosen


def missing_column(path: str, name: str, names: Iterable[str]) -> DataError:
    return DataError(
        f'{path}: there is no column "{name}"',
        found=f"columns: {', '.join(names) or 'none'}"[:300],
        expected="the same columns in every file of a source",
        fix="correct the name in the recipe, or write the file again with the column",
    )


def _check_type(path: str, name: str, kind: Any, *, inside: bool = False) -> None:
    pa = load_pyarrow()
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    refused = types.is_union(kind) or types.is_run_end_encoded(kind) or types.is_interval(kind)
    # Python has no nanoseconds: numpy's own stand for them, but not inside a list.
    nanoseconds = getattr(kind, "unit", None) == "ns" and (inside or types.is_time64(kind))
    if refused or nanoseconds:
        raise DataError(
            f'{path}: column "{name}" is of a type that is not read',
            found=str(kind)[:200],
            expected="numbers, text, bytes, dates and times, structs, lists, maps or dictionaries",
            fix="leave it out with `options: {columns: [...]}`, or write it in another type",
        )
    inside = inside or not types.is_struct(kind)
    for i in range(kind.num_fields):
        _check_type(path, f"{name}.{kind.field(i).name}", kind.field(i).type, inside=inside)
    if types.is_dictionary(kind):
        _check_type(path, name, kind.value_type)


class ColumnNames:
    """Sees that all files of a source have the columns of the first that was read."""

    def __init__(self) -> None:
        self._first: tuple[str, frozenset[str]] | None = None

    def check(self, path: str, names: Sequence[str]) -> None:
        if self._first is None:
            self._first = path, frozenset(names)
        elif self._first[1] != frozenset(names):
            first, expected = self._first
            differing = sorted(expected.symmetric_difference(names))[0]
            without = path if differing in expected else first
            raise missing_column(without, differing, names if without == path else sorted(expected))


def media_columns(schema: Any, options: ColumnOptions) -> dict[str, MediaKind]:
    """The columns that hold media, by the options or by the features that Hugging Face writes into the schema."""
    found: dict[str, MediaKind] = {**dict.fromkeys(options.audio, "audio"), **dict.fromkeys(options.image, "image")}
    for name, kind in _features(schema).items():
        if kind in _MEDIA_FEATURES and name in schema.names and _holds_media(schema.field(name).type):
            found.setdefault(name, _MEDIA_FEATURES[kind])
    return found


def _holds_media(kind: Any) -> bool:
    if load_pyarrow().types.is_struct(kind):
        return not {"bytes", "path"}.isdisjoint(kind.field(i).name for i in range(kind.num_fields))
    return is_text_or_bytes(kind)


def _features(schema: Any) -> dict[str, str]:
    """The type of each feature; none where the metadata is not what Hugging Face writes."""
    try:
        features = json.loads((schema.metadata or {})[_FEATURES])["info"]["features"]
        return {
            name: about["_type"] for name, about in features.items() if isinstance(about, dict) and "_type" in about
        }
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def media_makers(path: str, schema: Any, options: ColumnOptions) -> dict[str, Callable[[Any], Media | None]]:
    """What makes media of the values of a column, which are bytes, paths, or structs of both."""
    base = path.rpartition("/")[0]
    return {name: _maker(path, schema.field(name), kind, base) for name, kind in media_columns(schema, options).items()}


def _maker(path: str, column: Any, kind: MediaKind, base: str) -> Callable[[Any], Media | None]:
    if not _holds_media(column.type):
        raise DataError(
            f'{path}: column "{column.name}" holds no {kind}',
            found=str(column.type)[:200],
            expected="bytes, a path, or a struct of `bytes` and `path`",
            fix=f"correct `options: {{{kind}: [...]}}`",
        )

    def medium(value: Any) -> Media | None:
        if value is None:
            return None
        if isinstance(value, dict):
            return Media(kind, data=value.get("bytes"), path=value.get("path"), base=base)
        return Media(kind, path=value, base=base) if isinstance(value, str) else Media(kind, data=value)

    return medium


def is_text(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_text_or_bytes(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def is_list(kind: Any) -> bool:
    """Whether rows of it are runs of one array of values, found by offsets."""
    types = load_pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def is_number(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind))


def offsets_type(kind: Any) -> type[np.signedinteger[Any]]:
    types = load_pyarrow().types
    large = types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    return np.int64 if large else np.int32


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

    Laws: it gives what `array.take(rows).to_pylist()` gives, but for what the module says; an array that contradicts
    itself is refused, here or with the row.
    """
    pa = load_pyarrow()
    types, kind = pa.types, array.type
    if isinstance(array, pa.ExtensionArray):
        return column_of(array.storage)
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
    if types.is_dictionary(kind):
        decoded = array.dictionary_decode()
        return column_of(decoded)(np.arange(len(decoded)))
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


def _fields(array: Any) -> list[Column]:
    return [column_of(array.field(i)) for i in range(array.type.num_fields)]


def struct_column(names: Sequence[str], columns: Sequence[Column], valid: Array | None) -> Column:
    def found(rows: IntArray) -> list[Any]:
        return as_rows(names, [column(rows) for column in columns], len(rows))

    return with_nulls(found, valid)


def as_samples(
    names: Sequence[str], columns: Sequence[list[Any]], count: int, media: Mapping[str, Callable[[Any], Media | None]]
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
    if len(rows) == 1:  # in a global shuffle most batches give a row at a time
        first, end = bounds[rows[0] : rows[0] + 2].tolist()
        return [first], [end]
    return bounds.take(rows).tolist(), bounds.take(rows + 1).tolist()


def check_bounds(bounds: Array, size: int) -> None:
    """Refuse bounds of rows that are not in order, or not inside their values."""
    if len(bounds) and (bounds[0] < 0 or bounds[-1] > size or (np.diff(bounds) < 0).any()):
        raise DataError(
            "the bounds of the rows contradict the values",
            found=f"bounds from {int(bounds.min()):,} to {int(bounds.max()):,}",
            expected=f"bounds in order, up to {size:,}",
            fix="restore the file, or write it again",
        )


def validity(array: Any) -> Array | None:
    """Which rows have a value; None where all have."""
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
        raise DataError("the bounds of the rows are cut short", found=f"{len(bounds):,} for {len(array):,} rows")
    return bounds


def _bytes(buffer: Any) -> memoryview:
    return memoryview(b"") if buffer is None else memoryview(buffer)
