"""The columns of an uncompressed record batch by their buffer ranges, so that a few rows cost a few ranges.

Of a column of large values only the bounds of its rows are read and kept; values are read when they are needed.
Everything else of a batch is small, and read and kept with the bounds: its *head*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from playhead.errors import DataError
from playhead.formats.arrow_types import (
    is_list,
    is_number,
    is_text,
    is_text_or_bytes,
    load_pyarrow,
    offsets_type,
    stored_type,
)
from playhead.formats.columns import Column, as_rows, check_bounds, column_of, decoded, ranges_of
from playhead.formats.ipc import BatchHeader, Message
from playhead.store import Buffer
from playhead.types import Array, IntArray

_LARGE_BYTES = 64  # values of this size on average are read by ranges


@dataclass(frozen=True)
class Located:
    """A field of a batch: its type as stored, its rows and nulls, the ranges of its buffers in the file, its fields."""

    type: Any
    num_rows: int
    num_nulls: int
    buffers: list[tuple[int, int]]
    children: list[Located]

    @property
    def is_ranged(self) -> bool:
        """Whether its values are large, each a contiguous range of bytes."""
        if is_text_or_bytes(self.type):
            first, end = self.buffers[2]
        elif is_list(self.type) and is_number(self.type.value_type) and not self.children[0].num_nulls:
            first, end = self.children[0].buffers[1]
        else:
            return False
        return end - first >= _LARGE_BYTES * self.num_rows


@dataclass(frozen=True)
class RangedColumn:
    """A partly read column: the ranges needed for some rows, and their values from those bytes."""

    ranges: Callable[[IntArray], tuple[list[int], list[int]]]
    values: Callable[[IntArray, Iterator[Buffer]], list[Any]]


def locate_columns(message: Message, header: BatchHeader, schema: Any) -> dict[str, Located] | None:
    """The columns of a batch by name; None if a column has a type with an unsupported buffer layout."""
    nodes = iter(header.nodes.tolist())
    buffers = iter((header.buffers + np.array([message.body, 0])).tolist())
    try:
        found = {column.name: _located(column.type, nodes, buffers) for column in schema}
    except StopIteration:
        raise _contradicts() from None
    if None in found.values():
        return None
    if next(nodes, None) is not None or next(buffers, None) is not None:
        raise _contradicts()
    if any(column is not None and column.num_rows != header.num_rows for column in found.values()):
        raise _contradicts()
    return {name: column for name, column in found.items() if column is not None}


def _contradicts() -> DataError:
    return DataError("the batch does not match the schema", fix="restore the file, or write it again")


def _located(kind: Any, nodes: Iterator[list[int]], buffers: Iterator[list[int]]) -> Located | None:
    types, kind = load_pyarrow().types, stored_type(kind)
    if is_text_or_bytes(kind):
        num_buffers = 3
    elif is_list(kind) or types.is_map(kind):
        num_buffers = 2
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        num_buffers = 1
    elif types.is_null(kind):
        num_buffers = 0
    elif types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        num_buffers = 2
    else:
        return None
    num_rows, num_nulls = next(nodes)
    own = [(first, first + size) for first, size in [next(buffers) for _ in range(num_buffers)]]
    children = [_located(kind.field(i).type, nodes, buffers) for i in range(kind.num_fields)]
    known = [child for child in children if child is not None]
    return Located(kind, num_rows, num_nulls, own, known) if len(known) == len(children) else None


def head_ranges(column: Located, *, by_ranges: bool) -> Iterator[tuple[int, int]]:
    """The ranges of a column that are read before any row; `by_ranges` leaves large values out."""
    buffers = column.buffers[: 0 if load_pyarrow().types.is_null(column.type) else None]
    first = 0 if column.num_nulls else 1
    if by_ranges and column.is_ranged:
        yield from buffers[first:2]
        return
    yield from buffers[first:]
    for child in column.children:
        yield from head_ranges(child, by_ranges=by_ranges and load_pyarrow().types.is_struct(column.type))


def open_column(column: Located, data: Iterator[Buffer], *, by_ranges: bool) -> RangedColumn:
    """A column from the bytes of its `head_ranges`, in order."""
    if by_ranges and column.is_ranged:
        return _ranged(column, data)
    if by_ranges and load_pyarrow().types.is_struct(column.type):
        return _struct(column, data)
    return loaded(column_of(open_array(column, data)))


def loaded(column: Column) -> RangedColumn:
    return RangedColumn(lambda _: ([], []), lambda rows, _: column(rows))


def open_array(column: Located, data: Iterator[Buffer]) -> Any:
    """A column that is read whole, as an array. Law: it is internally consistent."""
    array = _array(column, data)
    array.validate(full=True)
    return array


def _array(column: Located, data: Iterator[Buffer]) -> Any:
    pa = load_pyarrow()
    if pa.types.is_null(column.type):
        return pa.nulls(column.num_rows)
    valid = [pa.py_buffer(bytes(next(data))) if column.num_nulls else None]
    # A copy: the data may be a view of a much larger buffer.
    buffers = valid + [pa.py_buffer(bytes(next(data))) for _ in column.buffers[1:]]
    children = [_array(child, data) for child in column.children]
    return pa.Array.from_buffers(column.type, column.num_rows, buffers, column.num_nulls, children=children)


def _ranged(column: Located, data: Iterator[Buffer]) -> RangedColumn:
    valid = _bits(next(data), column.num_rows) if column.num_nulls else None
    bounds = np.frombuffer(next(data), offsets_type(column.type))[: column.num_rows + 1].copy()
    if len(bounds) != column.num_rows + 1:
        raise _contradicts()
    if is_text_or_bytes(column.type):
        begin, end = column.buffers[2]
        item_bytes = 1
        convert: Callable[[Buffer], Any] = decoded if is_text(column.type) else bytes
    else:
        begin, end = column.children[0].buffers[1]
        dtype = np.dtype(column.type.value_type.to_pandas_dtype())
        item_bytes = dtype.itemsize

        def convert(data: Buffer) -> Any:
            return np.frombuffer(data, dtype).copy()

    check_bounds(bounds, (end - begin) // item_bytes)

    def ranges(rows: IntArray) -> tuple[list[int], list[int]]:
        firsts, ends = ranges_of(bounds, rows)
        return [begin + first * item_bytes for first in firsts], [begin + end * item_bytes for end in ends]

    def values(rows: IntArray, data: Iterator[Buffer]) -> list[Any]:
        return _with_nulls([convert(next(data)) for _ in range(len(rows))], rows, valid)

    return RangedColumn(ranges, values)


def _struct(column: Located, data: Iterator[Buffer]) -> RangedColumn:
    valid = _bits(next(data), column.num_rows) if column.num_nulls else None
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    if any(child.num_rows != column.num_rows for child in column.children):
        raise _contradicts()
    fields = [open_column(child, data, by_ranges=True) for child in column.children]

    def values(rows: IntArray, data: Iterator[Buffer]) -> list[Any]:
        return _with_nulls(as_rows(names, [field.values(rows, data) for field in fields], len(rows)), rows, valid)

    return RangedColumn(lambda rows: joined_ranges(fields, rows), values)


def joined_ranges(columns: Sequence[RangedColumn], rows: IntArray) -> tuple[list[int], list[int]]:
    """The ranges of all columns, one column after another."""
    firsts, ends = [], []
    for column in columns:
        more, until = column.ranges(rows)
        firsts += more
        ends += until
    return firsts, ends


def _with_nulls(values: list[Any], rows: IntArray, valid: Array | None) -> list[Any]:
    if valid is None:
        return values
    return [value if known else None for value, known in zip(values, valid.take(rows).tolist(), strict=True)]


def _bits(data: Buffer, count: int) -> Array:
    found = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count].astype(np.bool_)
    if len(found) != count:
        raise _contradicts()
    return found
