"""The fields a scan needs, decoded from many JSON lines at once with everything else skipped.

Law: `decode` returns what a Collector fed line by line returns, or None; the caller then falls back to reading line
by line, which also finds the line that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, get_origin

import msgspec
import numpy as np

from playhead.errors import DataError
from playhead.formats.lengths import UNKNOWN, added, all_planned_seconds, whole_numbers
from playhead.formats.lines import Lines
from playhead.formats.schema import IDS, LENGTHS, OUTPUTS, column
from playhead.formats.spec import Spec
from playhead.formats.tokens import Tokens, text_fields
from playhead.recipe.values import Length
from playhead.seeds import hash_text
from playhead.types import Array, LengthArray

_NUMBER = float
_ID = int | str
_TEXT = str
_NONE: Mapping[str, Any] = MappingProxyType({})


def fast_decoder(
    spec: Spec, place: Callable[[str], str | None] = str, required: Mapping[str, Any] = _NONE
) -> Callable[[Lines], dict[str, Array] | None] | None:
    """A decoder for the spec; None if every row must be decoded whole.

    `place` returns where in an object a field is, or None if it must be computed from others; `required` are types
    that further parts of every object must have.
    """
    fields: dict[str, Any] = {match.name: Any for match in spec.matches}
    fields |= dict.fromkeys(spec.columns, float | None)
    for term in _terms(spec):
        if term.turns or term.function is not None or (term.unit == "bytes" and term.field):
            return None
        if term.tokenizer is not None:
            fields |= dict.fromkeys(text_fields(term), _TEXT)
        elif term.field is not None:
            fields[term.field] = _TEXT if term.unit == "characters" else _NUMBER
    if spec.ids is not None:
        fields[spec.ids] = Any if spec.ids in fields else _ID
    parts = {field: place(field) for field in fields}
    if None in parts.values() or not required.keys().isdisjoint(parts.values()):
        return None
    tree = _tree({str(part): fields[field] for field, part in parts.items()} | dict(required))
    if tree is None:
        return None
    places: dict[str, str] = {}
    decoder = msgspec.json.Decoder(_struct(tree, (), (), places))
    return _Fast(spec, decoder, {field: places[str(part)] for field, part in parts.items()}).decode


def _terms(spec: Spec) -> list[Length]:
    return [term for length in (spec.length, spec.output_length) if length is not None for term in length.terms]


class _Fast:
    def __init__(self, spec: Spec, decoder: msgspec.json.Decoder[Any], places: dict[str, str]) -> None:
        self._spec = spec
        self._decoder = decoder
        self._getters = {field: attrgetter(place) for field, place in places.items()}
        self._tokens = {id(term): Tokens(term, spec.tokenizers) for term in _terms(spec) if term.tokenizer}
        self._matches = [(match.column, match.name, match.compile()) for match in spec.matches]

    def decode(self, lines: Lines) -> dict[str, Array] | None:
        if not self._getters:
            rows: list[Any] = []
        elif not lines.regular:
            return None
        else:
            try:
                rows = self._decoder.decode_lines(lines.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            if len(rows) != lines.starts.size:
                return None
        return self._columns(rows, lines)

    def _columns(self, rows: list[Any], lines: Lines) -> dict[str, Array] | None:
        spec, arrays = self._spec, dict[str, Array]()
        for array, length in ((LENGTHS, spec.length), (OUTPUTS, spec.output_length)):
            if length is not None:
                lengths = self._length(length, rows, lines)
                if lengths is None:
                    return None
                arrays[array] = lengths
        try:
            for name in spec.columns:
                values = np.array(list(map(self._getters[name], rows)), dtype=np.float64)
                with np.errstate(over="ignore"):
                    arrays[column(name)] = values.astype(np.float32)
            for name, field, accepts in self._matches:
                found: Iterable[Any] = map(self._getters[field], rows)
                arrays[column(name)] = np.fromiter(map(accepts, found), dtype=np.uint8, count=len(rows))
            if spec.ids is not None:
                texts: Iterable[str] = map(_text, map(self._getters[spec.ids], rows))
                arrays[IDS] = np.fromiter(map(hash_text, texts), dtype=np.uint64, count=len(rows))
        except (TypeError, ValueError, OverflowError):
            return None
        return arrays

    def _length(self, length: Length, rows: list[Any], lines: Lines) -> LengthArray | None:
        if length.sum:
            found = [self._length(term, rows, lines) for term in length.sum]
            terms = [term for term in found if term is not None]
            return added(terms) if len(terms) == len(found) else None
        if id(length) in self._tokens:
            return self._counted(self._tokens[id(length)], rows)
        if length.field is None and length.from_headers:
            return np.full(lines.starts.size, UNKNOWN, np.uint32)
        if length.field is None:
            sizes = lines.ends - lines.starts
            return sizes.astype(np.uint32)
        if length.unit == "characters":
            return np.fromiter(map(len, map(self._getters[length.field], rows)), dtype=np.uint32, count=len(rows))
        values = np.fromiter(map(self._getters[length.field], rows), dtype=np.float64, count=len(rows))
        if length.in_seconds:
            return all_planned_seconds(values, length, self._spec.audio_changes)
        return whole_numbers(values, length.unit)

    def _counted(self, tokens: Tokens, rows: list[Any]) -> LengthArray | None:
        try:
            return tokens.counts([tokens.text(lambda name, row=row: self._getters[name](row)) for row in rows])  # type: ignore[misc]
        except DataError:
            return None


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError
    return str(value)


def _tree(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Dotted names as nested dictionaries; None where one name is inside another."""
    tree: dict[str, Any] = {}
    for field, kind in fields.items():
        *outer, last = field.split(".")
        here = tree
        for part in outer:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                return None
        if last in here:
            return None
        here[last] = kind
    return tree


def _struct(tree: dict[str, Any], names: tuple[str, ...], place: tuple[str, ...], places: dict[str, str]) -> Any:
    """A struct with just these fields. A field that may be missing has a default; a required one has none."""
    fields: list[Any] = []
    rename: dict[str, str] = {}
    for i, (name, kind) in enumerate(tree.items()):
        attribute = f"f{i}"
        rename[attribute] = name
        here = ((*names, name), (*place, attribute))
        if isinstance(kind, dict):
            inner = _struct(kind, *here, places)
            optional = all(field.default is not msgspec.NODEFAULT for field in msgspec.structs.fields(inner))
            default = msgspec.field(default=inner()) if optional else msgspec.NODEFAULT
            fields.append((attribute, inner, default) if optional else (attribute, inner))
            continue
        places[".".join(here[0])] = ".".join(here[1])
        required = kind in (_NUMBER, _TEXT) or kind == _ID or get_origin(kind) is Literal
        fields.append((attribute, kind) if required else (attribute, kind, None))
    # Required fields may follow optional ones only as keywords.
    return msgspec.defstruct("Fields", fields, rename=rename, kw_only=True, frozen=True, gc=False)
