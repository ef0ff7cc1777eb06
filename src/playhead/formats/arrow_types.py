"""Arrow types: which can be read, and the types of their values in a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from playhead.errors import DataError, RecipeError

NULLS = "nulls"  # the type of a column without a value


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


def is_text(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_text_or_bytes(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def is_list(kind: Any) -> bool:
    """Whether its rows are slices of one array of values, found by offsets."""
    types = load_pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def is_number(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind))


def offsets_type(kind: Any) -> type[np.signedinteger[Any]]:
    types = load_pyarrow().types
    large = types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    return np.int64 if large else np.int32


def stored_type(kind: Any) -> Any:
    """The storage type of an extension type."""
    while isinstance(kind, load_pyarrow().BaseExtensionType):
        kind = kind.storage_type
    return kind


def check_type(path: str, name: str, kind: Any, *, inside: bool = False) -> None:
    """Refuse a column of an unsupported type."""
    types, kind = load_pyarrow().types, stored_type(kind)
    refused = types.is_union(kind) or types.is_run_end_encoded(kind) or types.is_interval(kind)
    # Arrow 26 casts views of lists to inconsistent lists.
    refused = refused or "list_view" in str(kind).partition("<")[0]
    # Python has no nanoseconds: numpy types are used instead, but not inside a list.
    nanoseconds = getattr(kind, "unit", None) == "ns" and (inside or types.is_time64(kind))
    if refused or nanoseconds:
        raise DataError(
            f'{path}: column "{name}" has an unsupported type',
            found=str(kind)[:200],
            expected="numbers, text, bytes, dates and times, structs, lists, maps or dictionaries",
            fix="leave it out with `options: {columns: [...]}`, or write it in another type",
        )
    inside = inside or not types.is_struct(kind)
    for i in range(kind.num_fields):
        check_type(path, f"{name}.{kind.field(i).name}", kind.field(i).type, inside=inside)
    if types.is_dictionary(kind):
        check_type(path, name, kind.value_type)


def without_views(kind: Any) -> Any:
    """The type with views of texts and bytes as texts and bytes, for which Arrow has all its functions."""
    pa = load_pyarrow()
    types = pa.types
    if "view" not in str(kind):  # older versions of pyarrow have no views, and no functions to test for them
        return kind
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pa.string() if types.is_string_view(kind) else pa.binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([_with_type(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_with_type(kind.key_field), _with_type(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_with_type(kind.value_field), kind.list_size)
    if is_list(kind):
        return (pa.large_list if types.is_large_list(kind) else pa.list_)(_with_type(kind.value_field))
    return kind


def _with_type(field: Any) -> Any:
    return field.with_type(without_views(field.type))


def delivered_type(kind: Any) -> str:
    """The type of values in a sample. Law: types with one name have values of one Python or numpy type."""
    types, kind = load_pyarrow().types, without_views(stored_type(kind))
    if types.is_dictionary(kind):
        return delivered_type(kind.value_type)
    if types.is_struct(kind):
        fields = sorted(f"{kind.field(i).name}: {delivered_type(kind.field(i).type)}" for i in range(kind.num_fields))
        return f"struct of {{{', '.join(fields)}}}"
    if types.is_map(kind):
        return f"map of {delivered_type(kind.key_type)} to {delivered_type(kind.item_type)}"
    if is_list(kind) or types.is_fixed_size_list(kind):
        return f"list of {kind.value_type if is_number(kind.value_type) else delivered_type(kind.value_type)}"
    names = {
        "text": is_text,
        "bytes": lambda kind: is_text_or_bytes(kind) or types.is_fixed_size_binary(kind),
        "integer": types.is_integer,
        "float": types.is_floating,
        "decimal": types.is_decimal,
        NULLS: types.is_null,
    }
    return next((name for name, suits in names.items() if suits(kind)), str(kind))
