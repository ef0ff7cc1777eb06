"""Plain values fitted to the recipe's types, with errors a user can follow.

msgspec checks types too, but names neither the keys of a mapping in its paths nor the nearest known key, so this
pass over its type descriptions comes first. It also widens the shorthands: one text for a list of one, a field's
name for a `Length`, and groups recognised by their `sources`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

import msgspec
from msgspec import inspect as mi

from playhead.errors import RecipeError
from playhead.recipe.plain import TAG, to_plain
from playhead.recipe.text import Ambiguous
from playhead.recipe.values import Length
from playhead.recipe.words import describe, expected_of, nearest, quoting

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")


def fit(value: Any, kind: mi.Type, path: str) -> Any:
    """The value in the form that msgspec accepts, or a RecipeError that names `path`."""
    if isinstance(value, msgspec.Struct):
        value = to_plain(value)
    return _FITTERS[type(kind)](value, kind, path)


def _struct(value: Any, kind: mi.StructType, path: str) -> dict[str, Any]:
    if kind.cls is Length and isinstance(value, str):
        field = _text(value, mi.StrType(), path)
        return {"field": field, "unit": "seconds"} if field == "duration" else {"field": field}
    if not isinstance(value, Mapping):
        raise _mismatch(value, kind, path)
    fields = {field.name: field for field in kind.fields}
    tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
    known = [*fields, *(name for name in tag if name != TAG)]
    for key in value:
        if key not in known:
            raise _unknown_key(key, known, path)
    _require(value, kind, path)
    found = {key: fit(item, fields[key].type, _inside(path, key)) for key, item in value.items() if key in fields}
    return {**found, **tag}


def _require(value: Mapping[Any, Any], kind: mi.StructType, path: str) -> None:
    missing = [field.name for field in kind.fields if field.required and field.name not in value]
    if not missing:
        return
    name = value.get("name")
    where = f'{path or "the recipe"} "{name}"' if isinstance(name, str) else path or "the recipe"
    raise RecipeError(f"{where}: `{missing[0]}` is missing", found=describe(value))


def _unknown_key(key: Any, known: list[str], path: str) -> RecipeError:
    near = " or ".join(f"`{name}`" for name in nearest(str(key), known))
    return RecipeError(
        f"{_inside(path, key)}: unknown key",
        found=str(key),
        expected=None if near else f"one of: {', '.join(sorted(known))}",
        fix=f"did you mean {near}?" if near else None,
    )


def _choice(value: Any, kind: mi.UnionType, path: str) -> Any:
    if value is None and any(isinstance(member, mi.NoneType) for member in kind.types):
        return None
    structs = [member for member in kind.types if isinstance(member, mi.StructType)]
    if structs and isinstance(value, Mapping):
        return _struct(value, _tagged(value, structs, path), path)
    if structs == [member for member in structs if member.cls is Length] and structs and isinstance(value, str):
        return _struct(value, structs[0], path)
    texts = any(isinstance(member, mi.StrType) for member in kind.types)
    for suits in (_suits, _suits_as_number) if texts else (_suits_as_number, _suits):
        for member in kind.types:
            if suits(value, member):
                return fit(value, member, path)
    raise _mismatch(value, kind, path)


def _tagged(value: Mapping[Any, Any], structs: list[mi.StructType], path: str) -> mi.StructType:
    by_tag = {str(struct.tag): struct for struct in structs}
    if len(structs) == 1:
        return structs[0]
    if structs[0].tag_field == TAG:
        return by_tag["group" if "sources" in value else "source"]
    tag_field = str(structs[0].tag_field)
    given = value.get(tag_field)
    if isinstance(given, str) and given in by_tag:
        return by_tag[given]
    near = nearest(str(given), by_tag)
    raise RecipeError(
        f"{_inside(path, tag_field)}: {'is missing' if given is None else 'is an unknown kind'}",
        found=describe(value) if given is None else str(given),
        expected=f"one of: {', '.join(sorted(by_tag))}",
        fix=f"did you mean `{near[0]}`?" if near else None,
    )


def _suits(value: Any, kind: mi.Type) -> bool:
    if isinstance(kind, (mi.StrType, mi.LiteralType)):
        return isinstance(value, (str, PathLike))
    if isinstance(kind, (mi.IntType, mi.FloatType)):
        return isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(kind, (mi.ListType, mi.TupleType)):
        return isinstance(value, (list, tuple))
    if isinstance(kind, mi.BoolType):
        return isinstance(value, (bool, Ambiguous)) or value in ("true", "false")
    return isinstance(kind, (mi.DictType, mi.StructType)) and isinstance(value, Mapping)


def _suits_any(value: Any, kind: mi.Type) -> bool:
    return isinstance(kind, mi.UnionType) and any(_suits(value, member) for member in kind.types)


def _suits_as_number(value: Any, kind: mi.Type) -> bool:
    return isinstance(kind, (mi.IntType, mi.FloatType)) and isinstance(value, str) and bool(_NUMBER.fullmatch(value))


def _number(value: Any, kind: mi.IntType | mi.FloatType, path: str) -> int | float:
    if _suits_as_number(value, kind):  # from ${ENV}, or with underscores
        digits = str(value).replace("_", "")
        value = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
    if not _suits(value, kind):
        raise _mismatch(value, kind, path)
    if not isfinite(value):
        raise RecipeError(f"{path}: must be a finite number", found=str(value), expected=expected_of(kind))
    whole = int(value) if isinstance(value, Integral) or value == int(value) else None
    number = float(value) if isinstance(kind, mi.FloatType) else whole
    if number is None or not _within(number, kind):
        raise _mismatch(value, kind, path)
    return number


def _within(number: float, kind: mi.IntType | mi.FloatType) -> bool:
    if (kind.ge is not None and number < kind.ge) or (kind.gt is not None and number <= kind.gt):
        return False
    return kind.le is None or number <= kind.le


def _truth(value: Any, kind: mi.BoolType, path: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Ambiguous):
        raise _two_meanings(value, path)
    if value in ("true", "false"):  # from ${ENV}
        return bool(value == "true")
    raise _mismatch(value, kind, path)


def _text(value: Any, kind: mi.StrType, path: str) -> str:
    if not _suits(value, kind):
        raise _mismatch(value, kind, path)
    return str(fspath(value))


def _one_of(value: Any, kind: mi.LiteralType, path: str) -> Any:
    if value in kind.values and not isinstance(value, bool):
        return str(value)
    near = nearest(str(value), [str(known) for known in kind.values])
    fix = quoting(value) or (f"did you mean `{near[0]}`?" if near else None)
    raise RecipeError(f"{path}: unknown value", found=describe(value), expected=expected_of(kind), fix=fix)


def _list(value: Any, kind: mi.ListType, path: str) -> list[Any]:
    if isinstance(kind.item_type, mi.StrType) and isinstance(value, (str, PathLike)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise _mismatch(value, kind, path)
    return [fit(item, kind.item_type, f"{path}[{i}]") for i, item in enumerate(value)]


def _tuple(value: Any, kind: mi.TupleType, path: str) -> list[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != len(kind.item_types):
        raise _mismatch(value, kind, path)
    return [fit(item, each, f"{path}[{i}]") for i, (item, each) in enumerate(zip(value, kind.item_types, strict=True))]


def _mapping(value: Any, kind: mi.DictType, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _mismatch(value, kind, path)
    for key in value:
        if not isinstance(key, str):
            raise RecipeError(f"{path}: a key must be text", found=describe(key), fix=quoting(key))
    return {str(key): fit(item, kind.value_type, _inside(path, key)) for key, item in value.items()}


def _anything(value: Any, kind: mi.AnyType, path: str) -> Any:
    """Undescribed values are passed on; only an ambiguous word is refused."""
    if isinstance(value, Ambiguous):
        raise _two_meanings(value, path)
    if isinstance(value, Mapping):
        return {str(key): _anything(item, kind, _inside(path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_anything(item, kind, f"{path}[{i}]") for i, item in enumerate(value)]
    return value


def _two_meanings(value: Ambiguous, path: str) -> RecipeError:
    return RecipeError(
        f"{path}: some YAML readers treat this word as a boolean, others as text",
        found=str(value),
        fix=f'write true or false, or "{value}" in quotes for text',
    )


def _nothing(value: Any, kind: mi.NoneType, path: str) -> None:
    if value is not None:
        raise _mismatch(value, kind, path)


def _mismatch(value: Any, kind: mi.Type, path: str) -> RecipeError:
    return RecipeError(
        f"{path or 'the recipe'}: invalid value",
        found=describe(value),
        expected=expected_of(kind),
        fix=quoting(value) if _suits("text", kind) or _suits_any("text", kind) else None,
    )


def _inside(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


_FITTERS: dict[type[mi.Type], Callable[[Any, Any, str], Any]] = {
    mi.StructType: _struct,
    mi.UnionType: _choice,
    mi.IntType: _number,
    mi.FloatType: _number,
    mi.BoolType: _truth,
    mi.StrType: _text,
    mi.LiteralType: _one_of,
    mi.ListType: _list,
    mi.TupleType: _tuple,
    mi.DictType: _mapping,
    mi.AnyType: _anything,
    mi.NoneType: _nothing,
}
