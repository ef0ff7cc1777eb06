"""Scanning columns: lengths, ids, numbers and rules of many rows at once.

Law: `collect` returns what a Collector fed row by row returns. Otherwise it falls back to reading row by row, which
also finds the row that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from playhead.errors import DataError
from playhead.formats.arrow_types import is_number, is_text, is_text_or_bytes, load_pyarrow, without_views
from playhead.formats.collect import OWN_ID, ROW_ID, Collector, file_and_row, own_id
from playhead.formats.columns import as_rows, column_of
from playhead.formats.conversation import Conversation
from playhead.formats.conversation_lines import NO_ID, unlocated
from playhead.formats.lengths import MISSING, UNKNOWN, added, all_planned_seconds, whole_numbers
from playhead.formats.message_parts import MESSAGES, MessagesOptions, parse_messages
from playhead.formats.rows import Sample
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, column
from playhead.formats.spec import Spec
from playhead.formats.tokens import Tokens, text_fields
from playhead.recipe.values import Length
from playhead.seeds import hash_text
from playhead.types import Array

_MOST_BYTES = 64 << 20  # of one column at a time


def scanned_columns(spec: Spec, names: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """The columns that a scan must read, out of `names`; `chosen` are those that samples have."""
    lengths = [length for length in (spec.length, spec.output_length) if length is not None]
    terms = [term for length in lengths for term in length.terms]
    if any(term.function is not None for term in terms):
        return list(chosen)
    fields = [field for term in terms for field in _fields_of(term)]
    if spec.chat is not None:
        fields += spec.chat.fields
    fields += [*spec.columns, *(match.name for match in spec.matches)]
    if spec.ids is not None:
        fields.append(OWN_ID if spec.ids == ROW_ID else spec.ids)
    found = {_column_and_path(field, names)[0] for field in fields}
    return [name for name in names if name in found]


def _fields_of(term: Length) -> list[str]:
    if term.tokenizer is not None:
        return text_fields(term)
    return [] if term.field is None else [term.field]


def check_spec(path: str, spec: Spec) -> None:
    """Refuse lengths that columnar formats cannot provide."""
    lengths = [length for length in (spec.length, spec.output_length) if length is not None]
    for term in (term for length in lengths for term in length.terms):
        if term.unit == "bytes" and term.field is None:
            raise DataError(
                f"{path}: `unit: bytes` needs a field in columnar formats",
                expected="a column of text or bytes",
                fix="name it: `length: {field: text, unit: bytes}`",
            )


class _TooMuchAtOnceError(Exception):
    """Split the rows: dictionary values would take too much memory if they were repeated for all rows."""


def collect(spec: Spec, columns: Mapping[str, Any], numbers: Sequence[int], path: str) -> dict[str, Array]:
    """The arrays of the schema, of the rows of these numbers in the file, whose columns are read."""
    if spec.ids == ROW_ID:
        arrays = collect(replace(spec, ids=None), columns, numbers, path)
        return {**arrays, **_default_ids(columns, numbers, path)}
    try:
        found = _at_once(spec, columns, len(numbers))
    except _TooMuchAtOnceError:
        half = len(numbers) // 2
        first = collect(spec, {name: array[:half] for name, array in columns.items()}, numbers[:half], path)
        rest = collect(spec, {name: array[half:] for name, array in columns.items()}, numbers[half:], path)
        return {name: np.concatenate([first[name], rest[name]]) for name in first}
    except (UnicodeDecodeError, load_pyarrow().ArrowException):
        found = None
    return _row_by_row(spec, columns, numbers, path) if found is None else found


def _default_ids(columns: Mapping[str, Any], numbers: Sequence[int], path: str) -> dict[str, Array]:
    """The column `id` or, where a row has none, its file and number."""
    rows = np.arange(len(numbers))
    values = column_of(columns[OWN_ID])(rows) if OWN_ID in columns else [None] * len(rows)
    ids = []
    for number, value in zip(numbers, values, strict=True):
        try:
            ids.append(hash_text(own_id({OWN_ID: value}) or file_and_row(path, number)))
        except DataError as error:
            error.at(f"{path}, row {number:,}")
            raise
    return {IDS: np.array(ids, np.uint64)}


def _column_and_path(field: str, names: Sequence[str]) -> tuple[str | None, list[str]]:
    """The column whose name is the longest prefix of the field ("a.b" may be one), and the path into its structs."""
    parts = field.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in names:
            return name, parts[count:]
    return None, []


def _field(columns: Mapping[str, Any], field: str) -> Any:
    """The array of a field; None if no row has it."""
    pa = load_pyarrow()
    import pyarrow.compute as pc

    name, inner = _column_and_path(field, list(columns))
    if name is None:
        return None
    array = columns[name]
    for part in inner:
        array = _plain(array)
        if not pa.types.is_struct(array.type) or array.type.get_field_index(part) < 0:
            return None
        array = pc.struct_field(array, part)
    return _plain(array)


def _plain(array: Any) -> Any:
    """The array without encodings that only affect storage."""
    pa = load_pyarrow()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    array = array.cast(without_views(array.type))
    if not pa.types.is_dictionary(array.type):
        return array
    if len(array) > 1 and _repeated_bytes(array) > _MOST_BYTES:
        raise _TooMuchAtOnceError
    return array.dictionary_decode()


def _repeated_bytes(array: Any) -> int:
    """The bytes of the texts of a dictionary, counted for every row that has them."""
    import pyarrow.compute as pc

    if not is_text_or_bytes(array.type.value_type):
        return 0
    return pc.sum(pc.binary_length(array.dictionary).cast("int64").take(array.indices)).as_py() or 0


def _at_once(spec: Spec, columns: Mapping[str, Any], num_rows: int) -> dict[str, Array] | None:
    """The arrays; None where a row must be refused, or needs the row-by-row path."""
    arrays: dict[str, Array] = {}
    for name, length in ((LENGTHS, spec.length), (OUTPUTS, spec.output_length)):
        if length is not None:
            lengths = _lengths(length, columns, num_rows, spec)
            if lengths is None:
                return None
            arrays[name] = lengths
    for name in spec.columns:
        numbers = _numbers(_field(columns, name), num_rows, missing=float("nan"))
        if numbers is None:
            return None
        with np.errstate(over="ignore"):
            arrays[column(name)] = numbers.astype(np.float32)
    for match in spec.matches:
        texts = _field(columns, match.name)
        if texts is None or not is_text(texts.type):
            arrays[column(match.column)] = np.zeros(num_rows, np.uint8)
        else:
            accepted = map(match.compile(), _values(texts))
            arrays[column(match.column)] = np.fromiter(accepted, dtype=np.uint8, count=num_rows)
    if spec.ids is not None:
        ids = _field(columns, spec.ids)
        if ids is None or ids.null_count or not (is_text(ids.type) or load_pyarrow().types.is_integer(ids.type)):
            return None
        arrays[IDS] = np.fromiter(map(hash_text, map(str, _values(ids))), dtype=np.uint64, count=num_rows)
    return arrays


def _values(array: Any) -> list[Any]:
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _lengths(length: Length, columns: Mapping[str, Any], num_rows: int, spec: Spec) -> Array | None:
    if length.sum:
        found = [_lengths(term, columns, num_rows, spec) for term in length.sum]
        terms = [term for term in found if term is not None]
        return added(terms) if len(terms) == len(found) else None
    if length.turns is not None:
        return None
    if length.tokenizer is not None:
        by_field = {field: _texts(_field(columns, field)) for field in text_fields(length)}
        return _token_counts(Tokens(length, spec.tokenizers), by_field, num_rows)
    if length.field is None:
        return np.full(num_rows, UNKNOWN, np.uint32) if length.from_headers else None
    array = _field(columns, length.field)
    if length.unit == "characters":
        texts = _texts(array)
        return None if texts is None else np.fromiter(map(len, texts), np.uint32, num_rows)
    if length.unit == "bytes" and array is not None and is_text_or_bytes(array.type):
        import pyarrow.compute as pc

        array = pc.binary_length(array)
    elif length.unit == "bytes":
        return None
    values = None if array is None else _numbers(array, len(array))
    if values is None or not length.in_seconds:
        return None if values is None else whole_numbers(values, length.unit)
    return all_planned_seconds(values, length, spec.audio_changes)


def _token_counts(tokens: Tokens, texts: Mapping[str, list[str] | None], num_rows: int) -> Array | None:
    if None in texts.values():
        return None
    try:
        return tokens.counts([tokens.text(lambda name, i=i: texts[name][i]) for i in range(num_rows)])  # type: ignore[index,misc]
    except DataError:
        return None


def _texts(array: Any) -> list[str] | None:
    """The texts of a field; None where a row has none."""
    return None if array is None or array.null_count or not is_text(array.type) else _values(array)


def _numbers(array: Any, num_rows: int, missing: float | None = None) -> Any:
    """The numbers of a field as float64; None where a row has none, unless a default is given."""
    pa = load_pyarrow()
    if array is None or pa.types.is_null(array.type):
        return None if missing is None else np.full(num_rows, missing)
    if not is_number(array.type) or (array.null_count and missing is None):
        return None
    numbers = array.cast(pa.float64(), safe=False)
    return (numbers.fill_null(missing) if array.null_count else numbers).to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class _ScanRow:
    """One row, seen by a Collector."""

    value: Sample
    messages: str | None = None

    def conversation(self, tags: Mapping[str, Any]) -> Conversation:
        options = MessagesOptions(field=self.messages or MESSAGES)
        return parse_messages(self.value, own_id(self.value) or NO_ID, tags, unlocated, options)

    def get(self, field: str) -> Any:
        name, inner = _column_and_path(field, list(self.value))
        value: Any = self.value if name is None else self.value[name]
        for part in inner if name is not None else field.split("."):
            if not isinstance(value, dict) or part not in value:
                return MISSING
            value = value[part]
        return value.item() if isinstance(value, np.generic) else value

    def size(self, field: str | None) -> int:
        value = MISSING if field is None else self.get(field)
        if isinstance(value, dict):
            value = value.get("bytes")
        if isinstance(value, str):
            return len(value.encode())
        if not isinstance(value, bytes):
            raise DataError(f'column "{field}" has no size in bytes', found=repr(value)[:80])
        return len(value)

    def sample(self) -> Sample:
        return self.value


def _row_by_row(spec: Spec, columns: Mapping[str, Any], numbers: Sequence[int], path: str) -> dict[str, Array]:
    """The slow path, which reports the row that is wrong."""
    collector = Collector(spec)
    readers = [column_of(array) for array in columns.values()]
    for i, number in enumerate(numbers):
        here = np.array([i])
        try:
            (value,) = as_rows(list(columns), [read(here) for read in readers], 1)
            collector.add(_ScanRow(value, None if spec.chat is None else spec.chat.messages))
        except DataError as error:
            error.at(f"{path}, row {number:,}")
            raise
    return collector.take()
